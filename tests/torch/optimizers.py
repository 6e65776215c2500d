"""Replay PyTorch's database of optimizers on `torch.device("polyhal")`: `python -m tests.torch.optimizers --only Adam`.

Parameters and state after some steps are compared with those of the plain implementation on the CPU, for each implementation
(a loop, foreach, fused, capturable, differentiable), with parameter groups, and with state dicts exchanged with the CPU
half-way. The exit status is 1 if less than 98 % agree.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from tests.pytorch import optimizers as shared
from tests.pytorch.compare import difference
from tests.torch.placement import NAME, observed, on_cpu
from tests.torch.placement import Case as Placed
from tests.torch.replay import run


def replay_database(only: str, limit: int | None) -> Iterator[Placed]:
    """Replay the optimizers whose name contains `only`."""
    for entry in shared.optimizer_database():
        if only in entry.name:
            yield from replay(entry, limit=limit)


def replay(entry: Any, *, limit: int | None = None) -> Iterator[Placed]:
    """Replay the cases of an optimizer in float32, at most `limit` evenly chosen ones."""
    if entry.name in shared.SENSELESS:
        yield Placed(entry.name, "", None)
        return
    drawn = list(shared.cases(entry))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in drawn[:: 1 if limit is None else max(1, len(drawn) // limit)]:
            yield Placed(entry.name, f"({case.text})", observed(_Replay(entry, case).difference))


class _Replay:
    """Equal steps on the device and on the CPU, from equal parameters and gradients."""

    def __init__(self, entry: Any, case: shared.Case) -> None:
        self._entry, self._case = entry, case
        torch.manual_seed(0)
        shapes = shared.shapes_of(entry.name)
        self._theirs = [torch.randn(shape).requires_grad_() for shape in shapes]
        self._gradients = [[torch.randn(shape) for shape in shapes] for _ in range(shared.STEPS)]
        self._mine = [p.detach().to(NAME).requires_grad_() for p in self._theirs]
        if case.flags.get("differentiable"):
            self._mine = [p.clone() for p in self._mine]  # steps of leaves have no gradient
        self._settings = dict(case.settings)
        if entry.step_requires_closure:
            self._settings["max_iter"] = 3  # both would converge to the minimum, even by different steps

    def difference(self) -> str:
        """Describe differences after the steps."""
        theirs, mine = self._optimizer(self._theirs), self._optimizer(self._mine, self._case.flags)
        half = shared.STEPS // 2 if self._case.exchange else shared.STEPS
        self._run(mine, theirs, 0, half)
        problem = self._compared(mine, theirs)
        if self._case.exchange == "from" and not problem:
            state, mine = copy.deepcopy(theirs.state_dict()), self._optimizer(self._mine, self._case.flags)
            mine.load_state_dict(state)
        elif self._case.exchange == "to" and not problem:
            state, theirs = copy.deepcopy(mine.state_dict()), self._optimizer(self._theirs)
            theirs.load_state_dict(state)
        self._run(mine, theirs, half, shared.STEPS)
        return problem or self._compared(mine, theirs)

    def _optimizer(self, params: list[torch.Tensor], flags: Any = None) -> Any:
        named: Any = [(f"p{i}", p) for i, p in enumerate(params)] if self._case.named else params
        groups = [{"params": named[:1]}, {"params": named[1:], "lr": 0.05}] if self._case.groups else named
        settings = self._settings
        if flags and flags.get("capturable"):
            settings = {k: v.to(NAME) if isinstance(v, torch.Tensor) else v for k, v in settings.items()}
        return self._entry.optim_cls(groups, **settings, **(flags or {}))

    def _run(self, mine: Any, theirs: Any, begin: int, end: int) -> None:
        for step in range(begin, end):
            for optimizer, params in ((mine, self._mine), (theirs, self._theirs)):
                gradients = [g.to(p.device) for g, p in zip(self._gradients[step], params, strict=True)]
                if self._entry.step_requires_closure:
                    first = [g.to(p.device) for g, p in zip(self._gradients[0], params, strict=True)]
                    optimizer.step(shared.closure(optimizer, params, first))
                    continue
                for number, (p, g) in enumerate(zip(params, gradients, strict=True)):
                    p.grad = None if step == 1 and number == 1 else g.clone()  # a parameter misses a step
                optimizer.step()

    def _compared(self, mine: Any, theirs: Any) -> str:
        tolerance = shared.TOLERANCES.get(self._entry.name, 8.0)
        problem = difference(on_cpu(self._mine), self._theirs, tolerance=tolerance)
        if problem:
            return f"parameters: {problem}"
        tolerance = shared.STATE_TOLERANCES.get(self._entry.name, 8.0)
        return shared.state_difference(on_cpu(mine.state_dict()), on_cpu(theirs.state_dict()), tolerance)


if __name__ == "__main__":
    sys.exit(run("optimizers", replay_database))
