"""Schedules that rise and fall: cyclic rates, one cycle, and cosines with restarts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from polyhal.hal.errors import message
from polyhal.optim.optimizer import Optimizer
from polyhal.optim.schedule import Scheduler

Rates = float | Sequence[float]


def _per_group(value: Rates, optimizer: Optimizer, name: str) -> list[float]:
    groups = len(optimizer.param_groups)
    values = list(value) if isinstance(value, Sequence) else [value] * groups
    if len(values) != groups:
        raise ValueError(message("schedule", f"{name} has {len(values)} values", expected=f"{groups}, one per group"))
    return values


class _WithMomentum(Scheduler):
    """Base of schedules that move momentum against the rate; for Adam, that is its first beta."""

    cycle_momentum: bool

    def momentum(self, step: int, group: int) -> float:
        """Return the momentum of group number `group` after `step` steps."""
        raise NotImplementedError

    def _set(self) -> None:
        super()._set()
        if self.cycle_momentum:
            for i, group in enumerate(self.optimizer.param_groups):
                value = self.momentum(self.last_epoch, i)
                if "momentum" in group:
                    group["momentum"] = value
                else:
                    group["betas"] = (value, *group["betas"][1:])

    def _check_momentum(self, optimizer: Optimizer) -> None:
        if self.cycle_momentum and not all("momentum" in g or "betas" in g for g in optimizer.param_groups):
            problem = f"{type(optimizer).__name__} has no momentum"
            raise ValueError(message(type(self).__name__, problem, fix="pass cycle_momentum=False"))


class CyclicLR(_WithMomentum):
    """Between `base_lr` and `max_lr`: up in `step_size_up` steps, and down in `step_size_down`. Source: arXiv:1506.01186.

    `mode` shrinks the cycles: "triangular" not at all, "triangular2" by half each, "exp_range" by `gamma` in every step;
    `scale_fn` does so as a function of the cycle's number or of the step (`scale_mode`). Raises ValueError for another
    mode.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Rates,
        max_lr: Rates,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Rates = 0.8,
        max_momentum: Rates = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            expected = "'triangular', 'triangular2' or 'exp_range', or scale_fn"
            raise ValueError(message("CyclicLR", f"mode is {mode!r}", expected=expected))
        self.step_size_up, self.step_size_down = step_size_up, step_size_down or step_size_up
        self.mode, self.gamma = mode, gamma
        self._scale_fn, self.scale_mode = scale_fn, scale_mode
        self.cycle_momentum = cycle_momentum
        self._check_momentum(optimizer)
        self.max_lrs = _per_group(max_lr, optimizer, "max_lr")
        self.base_momentums = _per_group(base_momentum, optimizer, "base_momentum")
        self.max_momentums = _per_group(max_momentum, optimizer, "max_momentum")
        for group, base in zip(optimizer.param_groups, _per_group(base_lr, optimizer, "base_lr"), strict=True):
            group["initial_lr"] = base
        super().__init__(optimizer, last_epoch)

    def _height(self, step: int) -> float:
        """How far between base and maximum, after scaling."""
        total = self.step_size_up + self.step_size_down
        cycle = 1 + step // total
        at = step % total
        height = (
            at / self.step_size_up if at <= self.step_size_up else 1 - (at - self.step_size_up) / self.step_size_down
        )
        if self._scale_fn is not None:
            return height * self._scale_fn(cycle if self.scale_mode == "cycle" else step)
        scales = {"triangular": 1.0, "triangular2": 0.5 ** (cycle - 1), "exp_range": self.gamma**step}
        return float(height * scales[self.mode])

    def rate(self, step: int, base: float, group: int) -> float:
        return base + (self.max_lrs[group] - base) * self._height(step)

    def momentum(self, step: int, group: int) -> float:
        return self.max_momentums[group] - (self.max_momentums[group] - self.base_momentums[group]) * self._height(step)

    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k != "_scale_fn"}


class OneCycleLR(_WithMomentum):
    """Up to `max_lr` in the first `pct_start` of all steps, then down to far below the first rate. Source: arXiv:1708.07120.

    Give `total_steps`, or `epochs` and `steps_per_epoch`. With `three_phase` it falls back to the first rate before the last
    descent. Raises ValueError without a number of steps, and for `pct_start` outside [0, 1] or another strategy than
    "cos" and "linear".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Rates,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: Rates = 0.85,
        max_momentum: Rates = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                problem = "the number of steps is not given"
                raise ValueError(message("OneCycleLR", problem, expected="total_steps, or epochs and steps_per_epoch"))
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0 or not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            problem = f"total_steps {total_steps}, pct_start {pct_start}, anneal_strategy {anneal_strategy!r}"
            raise ValueError(message("OneCycleLR", problem, expected="above 0, from 0 to 1, and 'cos' or 'linear'"))
        self.total_steps, self.pct_start, self.anneal_strategy = total_steps, pct_start, anneal_strategy
        self.three_phase, self.cycle_momentum = three_phase, cycle_momentum
        self._check_momentum(optimizer)
        self.max_lrs = _per_group(max_lr, optimizer, "max_lr")
        self.min_lrs = [m / div_factor / final_div_factor for m in self.max_lrs]
        self.base_momentums = _per_group(base_momentum, optimizer, "base_momentum")
        self.max_momentums = _per_group(max_momentum, optimizer, "max_momentum")
        for group, most in zip(optimizer.param_groups, self.max_lrs, strict=True):
            group["initial_lr"] = most / div_factor
        super().__init__(optimizer, last_epoch)

    def _at(self, step: int, low: float, high: float, last: float) -> float:
        """Return a value that goes from `low` to `high` and on to `last`, by way of `low` in three phases."""
        if step > self.total_steps:
            problem = f"step {step} of {self.total_steps}"
            raise ValueError(message("OneCycleLR", problem, expected="at most total_steps calls of step()"))
        peak = self.pct_start * self.total_steps - 1
        phases = [(peak, low, high)]
        if self.three_phase:
            phases.append((2 * peak, high, low))
        phases.append((self.total_steps - 1, low if self.three_phase else high, last))
        begin = 0.0
        for number, (end, a, b) in enumerate(phases):
            if step <= end or number == len(phases) - 1:
                part = (step - begin) / (end - begin) if end != begin else 1.0
                if self.anneal_strategy == "linear":
                    return a + (b - a) * part
                return b + (a - b) / 2 * (1 + math.cos(math.pi * part))
            begin = end
        raise AssertionError("the last phase has no end")

    def rate(self, step: int, base: float, group: int) -> float:
        return self._at(step, base, self.max_lrs[group], self.min_lrs[group])

    def momentum(self, step: int, group: int) -> float:
        most = self.max_momentums[group]
        return self._at(step, most, self.base_momentums[group], most)


class CosineAnnealingWarmRestarts(Scheduler):
    """Half a cosine from the base rate to `eta_min`, again and again: the first in `T_0` steps, each `T_mult` times as long.

    Source: arXiv:1608.03983. Raises ValueError for `T_0` or `T_mult` below 1.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803  PyTorch's name
        T_mult: int = 1,  # noqa: N803
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            problem = f"T_0 is {T_0} and T_mult {T_mult}"
            raise ValueError(message("CosineAnnealingWarmRestarts", problem, expected="1 or more"))
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        length, at = self.T_0, step
        while at >= length:
            at -= length
            length *= self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * at / length)) / 2
