"""A schedule that looks at a measure, such as the validation loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from polyhal.hal.errors import message
from polyhal.optim.optimizer import Optimizer

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


class ReduceLROnPlateau:
    """Multiply the rates by `factor` when a measure has not improved for more than `patience` calls of `step(measure)`.

    `mode` says whether less or more is better, `threshold` is the minimum improvement (relative, or absolute). After a
    reduction `cooldown` calls are not counted. `step` is for Python numbers: it does not belong into a captured step. Raises
    ValueError for a `factor` of 1 or more, for another mode, and unless there is one `min_lr` per group.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs") or factor >= 1:
            problem = f"mode {mode!r}, threshold_mode {threshold_mode!r}, factor {factor}"
            raise ValueError(message("ReduceLROnPlateau", problem, expected="min or max, rel or abs, and below 1"))
        groups = len(optimizer.param_groups)
        self.optimizer = optimizer
        self.min_lrs = list(min_lr) if isinstance(min_lr, Sequence) else [min_lr] * groups
        if len(self.min_lrs) != groups:
            problem = f"min_lr has {len(self.min_lrs)} values"
            raise ValueError(message("ReduceLROnPlateau", problem, expected=f"{groups}, one per group"))
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def step(self, metrics: Tensor, epoch: int | None = None) -> None:
        """Take note of a measure, a number or a tensor of one element, and reduce the rates if it is time."""
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                reduced = max(group["lr"] * self.factor, least)
                if group["lr"] - reduced > self.eps:
                    group["lr"] = reduced
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if math.isinf(self.best):
            return sign * value < sign * self.best
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1.0)
        return sign * value < sign * self.best - margin

    def get_last_lr(self) -> list[float]:
        """Return the current learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return all settings and counters."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.__dict__.update(state_dict)
