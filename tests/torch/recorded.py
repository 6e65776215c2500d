"""Run programs with a recorded step, and with the eager step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import polyhal.torch


class Task:
    """A small model with its optimizer; two of the same seed are equal."""

    def __init__(self, optimizer: Callable[[Any], torch.optim.Optimizer] | None = None) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to("polyhal")
        made = optimizer or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5))
        self.optimizer = made(self.model.parameters())
        self.seen: list[float] = []

    def step(self, x: torch.Tensor) -> torch.Tensor:
        loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> list[torch.Tensor]:
        kept = [x for s in self.optimizer.state.values() for x in s.values() if isinstance(x, torch.Tensor)]
        found = [*self.model.parameters(), *self.model.buffers(), *kept]
        return [x.detach().cpu().clone() for x in found]


def inputs(count: int = 8, device: str = "polyhal") -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    for _ in range(count):
        yield torch.randn(5, 3, generator=generator).to(device)


def equal(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def both(run: Callable[[Task, Callable[..., Any]], None], make: Callable[[], Task] = Task) -> Any:
    """Run a program with an eager and with a recorded step; both must end in equal states. Returns the step."""
    eager, recorded = make(), make()
    run(eager, eager.step)
    step = polyhal.torch.jit(recorded.step, strict=True)
    run(recorded, step)
    assert eager.seen == recorded.seen
    assert equal(eager.state(), recorded.state())
    return step
