"""The largest batch with which a step keeps to a budget of memory, found by planning steps without running them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polyhal.hal import dispatch
from polyhal.hal.capture.recorder import StepRecorder
from polyhal.hal.errors import OutOfMemoryError, message
from polyhal.hal.scheduler.report import MemoryReport
from polyhal.steps.jit import Jitted

_FINENESS = 32
"""Where values may be computed again, planning takes longer: the search ends when the size is known to one part in so many."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What `fit` found."""

    batch_size: int
    budget: int
    recompute: bool
    """Whether the step fits only where values are computed again: pass `budget` to `polyhal.jit` then."""
    report: MemoryReport
    """What the step needs with that batch size."""

    def __str__(self) -> str:
        how = f", with jit(step, budget={self.budget})" if self.recompute else ""
        return f"batch size {self.batch_size}{how}\n{self.report}"


def fit(
    step: Callable[..., Any],
    budget: int,
    *,
    batch: Callable[[int], Any] | None = None,
    recompute: bool = False,
    at_most: int = 1 << 20,
) -> Fit:
    """The largest batch size, up to `at_most`, with which a captured `step` needs at most `budget` bytes on each device.

    `step(n)` makes a batch of n and trains on it, or `step(*batch(n))` trains on a batch that it is given. Nothing runs: each
    size that is tried is recorded and planned, and everything is put back. What the step needs includes parameters and
    state, not what else is on the device. With `recompute`, values may be computed again rather than kept, as `polyhal.jit`
    does when it is given the budget; the size is then within 3 % of the largest. Raises OutOfMemoryError if not even a
    batch of one fits.
    """
    search = _Search(step, budget, batch, recompute)
    found = search.run(at_most)
    if found is None:
        raise OutOfMemoryError(
            message(
                "fit",
                f"a batch of one needs {search.needed[1] / 2**20:.2f} MiB",
                expected=f"at most {budget / 2**20:.2f} MiB",
                fix="use a smaller model or a larger budget" + ("" if recompute else ", or try recompute=True"),
            )
        )
    return found


class _Search:
    """Looks at sizes until one fits and the next does not.

    Memory grows about linearly, which says where to look next; where that has not helped much, in the middle.
    """

    def __init__(
        self, step: Callable[..., Any], budget: int, batch: Callable[[int], Any] | None, recompute: bool
    ) -> None:
        self._step = step
        self._budget = budget
        self._batch = batch
        self._recompute = recompute
        self.needed: dict[int, int] = {}
        """Bytes that steps without recomputation need, by batch size."""
        self._best: Fit | None = None

    def run(self, at_most: int) -> Fit | None:
        low, high = 0, at_most + 1
        size = 1
        halved = True
        while high - low > (max(low // _FINENESS, 1) if self._recompute else 1):
            before = high - low
            if self._fits(size):
                low = size
            else:
                high = size
            # Every other look at least takes half of what is left.
            halved = not halved or 2 * (high - low) <= before or high > at_most
            size = self._next(low, high, linear=halved)
        return self._best

    def _next(self, low: int, high: int, *, linear: bool) -> int:
        """A size between `low`, which fits, and `high`, which does not."""
        guess = min(2 * low, (low + high) // 2)
        if linear and len(self.needed) > 1 and not self._recompute:
            a, b = (low, high) if low in self.needed and high in self.needed else sorted(self.needed)[-2:]
            slope = (self.needed[b] - self.needed[a]) / (b - a)
            if slope > 0:
                guess = a + int((self._budget - self.needed[a]) / slope)
        return min(max(guess, low + 1), high - 1)

    def _fits(self, size: int) -> bool:
        report = self._report(size, None)
        self.needed[size] = max((d.step for d in report.devices), default=0)
        if self.needed[size] <= self._budget:
            self._best = Fit(size, self._budget, False, report)
            return True
        if not self._recompute:
            return False
        try:
            report = self._report(size, self._budget)
        except OutOfMemoryError:
            return False
        self._best = Fit(size, self._budget, True, report)
        return True

    def _report(self, size: int, budget: int | None) -> MemoryReport:
        step = Jitted(self._step, max_graphs=1, warm_up=True, budget=budget)
        if self._batch is None:
            return step.memory_report(size)
        making = StepRecorder()
        try:
            with dispatch.executing(making):  # so that a batch, too, is only recorded
                made = self._batch(size)
        finally:
            making.abandon()
        return step.memory_report(*made) if isinstance(made, tuple) else step.memory_report(made)


__all__ = ["Fit", "fit"]
