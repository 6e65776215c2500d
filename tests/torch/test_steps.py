"""Recorded steps of PyTorch programs: replays are bitwise equal to eager steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import polyhal.torch

pytestmark = pytest.mark.filterwarnings("error")
"""A step that is not replayed after all says so in a warning."""

STEPS = 10
Batch = tuple[torch.Tensor, torch.Tensor]


class Counted(nn.Module):
    """Dropout, and buffers that training changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.dropout(F.gelu(self.norm(self.first(x))), 0.2, self.training))


class Mixer(nn.Module):
    """A block of a transformer behind an embedding, with tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(5, 8)
        self.attention = nn.MultiheadAttention(8, 2, 0.1, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.tokens((x.abs() * 2).long().clamp(max=4))
        y = self.norm(y + self.attention(y, y, y, need_weights=False)[0])
        return self.head(y.mean(1))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "adamw one by one": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "adamw capturable": lambda p: torch.optim.AdamW(p, lr=1e-2, capturable=True),
    "adam amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "sgd one by one": lambda p: torch.optim.SGD(p, lr=1e-2, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, lr_decay=1e-2),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-2),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-2),
    "adadelta": torch.optim.Adadelta,
}


def batches(count: int = STEPS) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        x, t = torch.randn(7, 6, generator=generator), torch.randint(5, (7,), generator=generator)
        yield x.to("polyhal"), t.to("polyhal")


class Trained:
    """A model that was trained, step by step, recorded or not."""

    def __init__(self, model: nn.Module, optimizer: Callable[[Any], torch.optim.Optimizer]) -> None:
        torch.manual_seed(1)
        self.model = model.to("polyhal")
        self.optimizer = optimizer(self.model.parameters())
        self.losses: list[float] = []

    def step(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), t)
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> list[torch.Tensor]:
        """Parameters, gradients, buffers and the optimizer's state."""
        found = [*self.model.state_dict().values()]
        found += [p.grad for p in self.model.parameters() if p.grad is not None]
        for kept in self.optimizer.state_dict()["state"].values():
            found += [x for x in kept.values() if isinstance(x, torch.Tensor)]
        return [x.detach().cpu().clone() for x in found]


def same(a: Trained, b: Trained) -> None:
    assert a.losses == b.losses
    for x, y in zip(a.state(), b.state(), strict=True):
        assert torch.equal(x, y)


def pair(make: Callable[[], nn.Module], optimizer: Callable[[Any], torch.optim.Optimizer]) -> tuple[Trained, Trained]:
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(Trained(make(), optimizer))
    return made[0], made[1]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers(torch_on_numpy: None, kind: str) -> None:
    eager, recorded = pair(Counted, OPTIMIZERS[kind])
    for trained in (eager, recorded):
        step = polyhal.torch.jit(trained.step) if trained is recorded else trained.step
        torch.polyhal.manual_seed(5)
        trained.losses = [step(x, t).item() for x, t in batches()]
    same(eager, recorded)
    assert len(step.steps) == (2 if kind == "radam" else 1)  # RAdam decides by its step count


@pytest.mark.parametrize("make", [Counted, Mixer])
def test_devices(torch_device: str, make: Callable[[], nn.Module]) -> None:
    eager, recorded = pair(make, OPTIMIZERS["adamw fused"])
    for trained in (eager, recorded):
        step = polyhal.torch.jit(trained.step) if trained is recorded else trained.step
        torch.polyhal.manual_seed(5)
        trained.losses = [step(x, t).item() for x, t in batches()]
    for x, y in zip(eager.state(), recorded.state(), strict=True):
        assert torch.equal(x, y)
    # The loss is not state: its sum may be fused with the computation of its terms.
    assert recorded.losses == pytest.approx(eager.losses, rel=1e-6)
    assert len(step.steps) == 1


def test_a_tensor_returned_twice_is_one_tensor_in_each_run(torch_on_numpy: None) -> None:
    def step(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, [y], y.view(-1), x[1:]

    recorded = polyhal.torch.jit(step)
    for k in range(4):
        x = torch.full((2, 2), float(k), device="polyhal")
        first, (again,), flat, part = recorded(x)
        assert first is again
        first += 1
        assert flat.tolist() == [2.0 * k + 1] * 4
        assert part.tolist() == [[float(k)] * 2]
