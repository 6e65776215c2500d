"""The largest batch with which a step fits into a memory budget, found by planning steps without running them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polyhal.hal.compile.recording import Recording
from polyhal.hal.compile.scheduler.report import MemoryReport
from polyhal.hal.errors import OutOfMemoryError, message
from polyhal.hal.ops.top_level import top_level
from polyhal.steps.jit import Jitted

_PRECISION = 32
"""With rematerialization, planning takes longer: the search ends when the size is known to one part in so many."""


@top_level
@dataclass(frozen=True, slots=True)
class Fit:
    """The result of `fit`."""

    batch_size: int
    budget: int
    recompute: bool
    """True if the step fits only with rematerialization: pass `budget` to `polyhal.jit` then."""
    report: MemoryReport
    """The memory that the step needs with that batch size."""

    def __str__(self) -> str:
        how = f", with jit(step, budget={self.budget})" if self.recompute else ""
        return f"batch size {self.batch_size}{how}\n{self.report}"


@top_level
def fit(
    step: Callable[..., Any],
    budget: int,
    *,
    batch: Callable[[int], Any] | None = None,
    recompute: bool = False,
    at_most: int = 1 << 20,
) -> Fit:
    """Find the largest batch size, up to `at_most`, with which a captured `step` needs at most `budget` bytes on each device.

    `step(n)` makes a batch of n and trains on it, or `step(*batch(n))` trains on the batch it is passed. Nothing runs: for each
    size that is tried, the step is recorded, planned and rolled back. The memory includes parameters and state, but not what
    else is on the device. With `recompute`, values may be rematerialized, as `polyhal.jit` does with the budget; the size is
    then within 3 % of the largest. Raises OutOfMemoryError if not even a batch of one fits.
    """
    search = _BatchSizeSearch(step, budget, batch, recompute)
    best = search.run(at_most)
    if best is None:
        raise OutOfMemoryError(
            message(
                "fit",
                f"a batch of one needs {search.needed[1] / 2**20:.2f} MiB",
                expected=f"at most {budget / 2**20:.2f} MiB",
                fix="use a smaller model or a larger budget" + ("" if recompute else ", or try recompute=True"),
            )
        )
    return best


class _BatchSizeSearch:
    """Tries sizes until one fits and the next does not.

    Memory grows about linearly, which suggests the next size; if that does not narrow the range, the middle is tried.
    """

    def __init__(
        self, step: Callable[..., Any], budget: int, batch: Callable[[int], Any] | None, recompute: bool
    ) -> None:
        self._step = step
        self._budget = budget
        self._batch = batch
        self._recompute = recompute
        self.needed: dict[int, int] = {}
        """Bytes that steps without rematerialization need, by batch size."""
        self._best: Fit | None = None

    def run(self, at_most: int) -> Fit | None:
        low, high = 0, at_most + 1
        size = 1
        halved = True
        while high - low > (max(low // _PRECISION, 1) if self._recompute else 1):
            width = high - low
            if self._fits(size):
                low = size
            else:
                high = size
            # At least every other try halves the range.
            halved = not halved or 2 * (high - low) <= width or high > at_most
            size = self._next(low, high, linear=halved)
        return self._best

    def _next(self, low: int, high: int, *, linear: bool) -> int:
        """Return a size between `low`, which fits, and `high`, which does not."""
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
        recording = Recording()
        try:
            with recording:  # so that the batch is not allocated either
                batch = self._batch(size)
        finally:
            recording.abandon()
        return step.memory_report(*batch) if isinstance(batch, tuple) else step.memory_report(batch)
