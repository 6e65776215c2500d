"""Schedules made of other schedules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from polyhal.optim.optimizer import Optimizer
from polyhal.optim.schedule import Scheduler


class SequentialLR(Scheduler):
    """Schedulers in sequence: number i starts, with a step count of 0, at step `milestones[i - 1]`.

    Raises ValueError unless the milestones rise, one less than schedulers, all of this optimizer.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[Scheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if len(milestones) != len(schedulers) - 1 or sorted(milestones) != list(milestones):
            raise ValueError(
                f"milestones {list(milestones)} for {len(schedulers)} schedulers; expected one less, in rising order"
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError("all schedulers must belong to the optimizer that is given")
        self._schedulers = tuple(schedulers)
        self.milestones = list(milestones)
        super().__init__(optimizer, last_epoch)

    def rate(self, step: int, base: float, group: int) -> float:
        i = bisect_right(self.milestones, step)
        return self._schedulers[i].rate(step - (self.milestones[i - 1] if i else 0), base, group)

    def state_dict(self) -> dict[str, Any]:
        data = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        return {**data, "schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "schedulers"})


class ChainedScheduler(Scheduler):
    """Schedulers at once: the base rate times the factor of each.

    Raises ValueError without schedulers, and for schedulers of several optimizers.
    """

    def __init__(self, schedulers: Sequence[Scheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError("no schedulers to chain; expected at least one")
        if any(s.optimizer is not (optimizer or schedulers[0].optimizer) for s in schedulers):
            raise ValueError("all schedulers must belong to one optimizer")
        self._schedulers = tuple(schedulers)
        super().__init__(optimizer or schedulers[0].optimizer)

    def rate(self, step: int, base: float, group: int) -> float:
        result = base
        for s in self._schedulers:
            result *= s.rate(step, base, group) / base if base else 0.0
        return result

    def state_dict(self) -> dict[str, Any]:
        data = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        return {**data, "schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "schedulers"})
