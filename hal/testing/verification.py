"""Running the kit without pytest: what `polyhal verify` prints."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from polyhal.hal.device import Device
from polyhal.hal.testing.cases import cases
from polyhal.hal.testing.expectations import Expectations
from polyhal.hal.testing.scope import Scope


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one case. `problem` is empty where it passed, `detail` has the traceback of a failure."""

    id: str
    problem: str
    seconds: float
    detail: str = ""


@dataclass(slots=True)
class Report:
    """All outcomes on one device."""

    device: str
    passed: int = 0
    unsupported: int = 0
    known: list[Outcome] = field(default_factory=list)
    """Expected failures that failed."""
    failed: list[Outcome] = field(default_factory=list)
    """Failures, and expected failures that passed."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.failed


def verify(
    device: Device | str,
    *,
    scope: Scope | None = None,
    only: str = "*",
    expectations: Expectations | None = None,
    progress: Callable[[Outcome], None] | None = None,
) -> Report:
    """Run every case whose id matches the glob `only` on `device` with host fallbacks refused.

    `progress` is called after every case. Raises DeviceUnavailableError; failures of cases are in the report.
    """
    target, known = Device(device), expectations or Expectations()
    report = Report(target.name)
    start = time.perf_counter()
    with _fallback_refused():
        for case in cases(target, scope or Scope()):
            if not fnmatchcase(case.id, only):
                continue
            if known.is_unsupported(case.id):
                report.unsupported += 1
                continue
            outcome = _run(case.id, case.run)
            if known.is_expected_failure(case.id):
                if outcome.problem:
                    report.known.append(outcome)
                else:
                    report.failed.append(
                        Outcome(case.id, "passed, though it is listed as an expected failure", outcome.seconds)
                    )
            elif outcome.problem:
                report.failed.append(outcome)
            else:
                report.passed += 1
            if progress is not None:
                progress(outcome)
    report.seconds = time.perf_counter() - start
    return report


def _run(case: str, check: Callable[[], None]) -> Outcome:
    start = time.perf_counter()
    try:
        check()
    except Exception as error:  # a device may fail in any way; each is one line of the report
        text = f"{type(error).__name__}: {error}"
        return Outcome(case, text, time.perf_counter() - start, traceback.format_exc())
    return Outcome(case, "", time.perf_counter() - start)


@contextmanager
def _fallback_refused() -> Iterator[None]:
    previous = os.environ.get("POLYHAL_FALLBACK")
    os.environ["POLYHAL_FALLBACK"] = "error"
    try:
        yield
    finally:
        if previous is None:
            del os.environ["POLYHAL_FALLBACK"]
        else:
            os.environ["POLYHAL_FALLBACK"] = previous
