"""Learning rates as functions of the number of steps taken: the base class and the simple schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from polyhal.hal.core import dispatch
from polyhal.hal.errors import message
from polyhal.optim.optimizer import Optimizer


class Scheduler:
    """Base of schedulers. Call `step()` after the optimizer's.

    Rates depend only on the step count and the groups' initial rates, so that resuming is exact.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        """Begin after `last_epoch` + 1 steps; later than at 0 the groups must know their "initial_lr". Raises KeyError."""
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch >= 0 and "initial_lr" not in group:
                problem = f"group {i} has no 'initial_lr' to continue from step {last_epoch}"
                raise KeyError(message(type(self).__name__, problem, fix="load the optimizer's state dict first"))
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch + 1
        """How many steps were taken."""
        self._set()

    def rate(self, step: int, base: float, group: int) -> float:
        """Return the learning rate of group number `group` after `step` steps; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} defines no rate")

    def step(self) -> None:
        """Count a step and set the learning rates for the next one; in a captured step, at each replay."""
        dispatch.on_replay(partial(self._advance, 1), partial(self._advance, -1))

    def _advance(self, epochs: int) -> None:
        self.last_epoch += epochs
        self._set()

    def _set(self) -> None:
        for i, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs, strict=True)):
            group["lr"] = self.rate(self.last_epoch, base, i)

    def get_last_lr(self) -> list[float]:
        """Return the current learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the step count and all settings that are plain data."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a saved state, and set its learning rates."""
        self.__dict__.update(state_dict)
        self._set()


class LambdaLR(Scheduler):
    """The base rate times `lr_lambda(step)`; one function, or one per group. Functions are not part of the state.

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
        return base * self._functions[group](step)

    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k != "_functions"}


class ConstantLR(Scheduler):
    """The base rate times `factor` for the first `total_iters` steps, then the base rate."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        return base * self.factor if step < self.total_iters else base


class StepLR(Scheduler):
    """The base rate, multiplied by `gamma` every `step_size` steps.

    >>> optimizer = polyhal.optim.SGD([polyhal.tensor([1.0], requires_grad=True)], lr=1.0)
    >>> schedule = polyhal.optim.StepLR(optimizer, step_size=1, gamma=0.5)
    >>> optimizer.step(); schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        return float(base * self.gamma ** (step // self.step_size))


class LinearLR(Scheduler):
    """The base rate times a factor that changes linearly from `start_factor` to `end_factor` in `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        part = min(step, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * part)


class CosineAnnealingLR(Scheduler):
    """Half a cosine from the base rate to `eta_min` in `T_max` steps, and back again. Source: arXiv:1608.03983."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803  PyTorch's name
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * step / self.T_max)) / 2


class WarmupCosine(Scheduler):
    """Linear warm-up over `warmup_steps` steps, then half a cosine down to `min_lr` at `total_steps`, then `min_lr`.

    The first step already has the rate base / warmup_steps. Raises ValueError for more steps of warm-up than in all.
    """

    def __init__(self, optimizer: Optimizer, warmup_steps: int, total_steps: int, min_lr: float = 0.0) -> None:
        if not 0 <= warmup_steps <= total_steps:
            raise ValueError(
                f"{warmup_steps} warm-up steps of {total_steps} in all; expected 0 <= warmup_steps <= total_steps"
            )
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.min_lr = min_lr
        super().__init__(optimizer)

    def rate(self, step: int, base: float, group: int) -> float:
        if step < self.warmup_steps:
            return base * (step + 1) / self.warmup_steps
        part = min((step - self.warmup_steps) / max(self.total_steps - self.warmup_steps, 1), 1.0)
        return self.min_lr + (base - self.min_lr) * (1 + math.cos(math.pi * part)) / 2
