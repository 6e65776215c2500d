"""Batches of text windows in an order that the seed and the batch number decide, so that a data position is one number."""

from __future__ import annotations

import numpy as np

from polyhal.random import Generator

_STRIDE = 1 << 40
"""Counter blocks of the random stream between two epochs; far more than an epoch uses."""


class Windows:
    """An endless sequence of (input, target) windows over `tokens` (T,), epoch after epoch.

    An epoch cuts the tokens into adjacent windows of `context` tokens from a random start on and visits them in random order;
    targets are the tokens one further. Nothing is remembered from batch to batch except the current epoch's order.
    """

    def __init__(self, tokens: np.ndarray, context: int, batch_size: int, seed: int) -> None:
        assert len(tokens) > context, "checked where options meet the text"
        self._tokens = tokens
        self._context = context
        self._batch = batch_size
        self._seed = seed
        self.per_epoch = max((len(tokens) - 1) // context - 1, 1)
        self._slack = len(tokens) - 1 - self.per_epoch * context
        self._span = np.arange(context + 1)
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def batch(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Batch number `index` from 0: inputs and targets, int32, both (batch_size, context)."""
        first = index * self._batch
        starts = [self._start(i) for i in range(first, first + self._batch)]
        rows = self._tokens[np.asarray(starts)[:, None] + self._span].astype(np.int32)
        return rows[:, :-1], rows[:, 1:]

    def epoch(self, batches: int) -> float:
        """How often the text has been seen after so many batches."""
        return batches * self._batch / self.per_epoch

    def _start(self, window: int) -> int:
        epoch, position = divmod(window, self.per_epoch)
        if self._order[0] != epoch:
            self._order = (epoch, self._shuffled(epoch))
        return int(self._order[1][position])

    def _shuffled(self, epoch: int) -> np.ndarray:
        """The first token of every window of an epoch, in the order of visit."""
        generator = Generator(self._seed)
        generator.set_state({"seed": self._seed, "offset": (epoch + 1) * _STRIDE})
        start = int(generator.words(1)[0]) % (self._slack + 1)
        return start + generator.permutation(self.per_epoch) * self._context


def evenly_spread(tokens: np.ndarray, context: int, batch_size: int, most: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """At most `most` fixed batches over all of `tokens` for measuring the validation loss; the last one may be smaller."""
    count = (len(tokens) - 1) // context
    chosen = np.unique(np.linspace(0, count - 1, min(count, most * batch_size)).astype(np.int64)) * context
    rows = tokens[chosen[:, None] + np.arange(context + 1)].astype(np.int32)
    return [(r[:, :-1], r[:, 1:]) for r in (rows[i : i + batch_size] for i in range(0, len(rows), batch_size))]
