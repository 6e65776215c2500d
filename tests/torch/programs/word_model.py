"""A recurrent model of words: an LSTM over stretches of a text, whose state goes on from one to the next."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.torch.programs.data import words

_COLUMNS, _LENGTH = 4, 6


class WordModel(nn.Module):
    """Embedding, two recurrent layers, and a decoder with the embedding's weights."""

    def __init__(self, count: int, width: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Embedding(count, width)
        self.rnn = nn.LSTM(width, width, 2)
        self.decoder = nn.Linear(width, count)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        self.decoder.weight = self.encoder.weight

    def forward(
        self, tokens: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Return logarithms of probabilities of the next words, and the state after them."""
        out, state = self.rnn(self.encoder(tokens), state)
        return F.log_softmax(self.decoder(out), dim=-1).flatten(0, 1), state


def losses(device: str, steps: int) -> list[float]:
    """Train by plain descent with clipped gradients."""
    torch.manual_seed(1)
    text, count = words()
    rows = len(text) // _COLUMNS
    text = text[: rows * _COLUMNS].view(_COLUMNS, rows).t().contiguous().to(device)
    model = WordModel(count).to(device)
    state = None
    found: list[float] = []
    while len(found) < steps:
        for start in range(0, rows - 1 - _LENGTH, _LENGTH):
            if len(found) == steps:
                break
            state = None if state is None or not start else tuple(x.detach() for x in state)
            model.zero_grad()
            output, state = model(text[start : start + _LENGTH], state)
            loss = F.nll_loss(output, text[start + 1 : start + 1 + _LENGTH].reshape(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(p.grad, alpha=-5.0)
            found.append(loss.item())
    return found
