"""Schedules that fall: exponential, at milestones, polynomial, and by factors of a function."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from polyhal.optim.optimizer import Optimizer
from polyhal.optim.schedule import Scheduler


class ExponentialLR(Scheduler):
    """The base rate, multiplied by `gamma` in every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        return float(base * self.gamma**step)


class MultiStepLR(Scheduler):
    """The base rate, multiplied by `gamma` at each of `milestones`."""

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        return float(base * self.gamma ** bisect_right(self.milestones, step))


class PolynomialLR(Scheduler):
    """The base rate times (1 - step / `total_iters`) ** `power`, then 0."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        return float(base * (1 - min(step, self.total_iters) / self.total_iters) ** self.power)


class MultiplicativeLR(Scheduler):
    """The rate of the step before, times `lr_lambda(step)`. Functions are not part of the state.

    Raises ValueError unless there is one function per group.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        self._functions = tuple(lr_lambda) if isinstance(lr_lambda, Sequence) else (lr_lambda,) * groups
        if len(self._functions) != groups:
            raise ValueError(f"{len(self._functions)} functions for {groups} parameter groups; expected one each")
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        result = base
        for i in range(1, step + 1):
            result *= self._functions[group](i)
        return result

    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k != "_functions"}
