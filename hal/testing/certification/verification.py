"""Running the kit without pytest, and nothing else: what is found is for others to act on (see `examination`)."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceLostError
from polyhal.hal.testing.certification.record import Record
from polyhal.hal.testing.kit.cases import Case, cases
from polyhal.hal.testing.kit.expectations import Expectations
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.scope import Scope


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one case. `problem` is empty where it passed, `detail` has the traceback of a failure."""

    id: str
    problem: str
    seconds: float
    detail: str = ""
    case: Case | None = None
    error: Exception | None = None

    @property
    def lost(self) -> bool:
        """Whether the device is gone, so that nothing can be said about later cases."""
        return isinstance(self.error, DeviceLostError)


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
    record: Record = field(default_factory=Record)
    """How the ops ran, and how far they were off."""
    outcomes: list[Outcome] = field(default_factory=list)
    """Those of all cases that ran and were not expected to fail, in order."""
    lost: bool = False
    """Whether the run ended early because the device stopped answering."""

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
    """Run every case whose id matches the glob `only` on `device`, with host fallbacks refused and nothing quarantined.

    `progress` is called after every case. Raises DeviceUnavailableError; failures of cases are in the report. A run ends
    early where the device is lost.
    """
    target, record = isolated(Device(device)), Record()
    return run(target, selected(target, scope or Scope(), only, record), record, expectations, progress)


def selected(device: Device, scope: Scope, only: str, record: Record) -> list[Case]:
    """The cases whose id matches the glob `only`."""
    return [c for c in cases(device, scope, record) if fnmatchcase(c.id, only)]


def run(
    device: Device,
    chosen: Iterable[Case],
    record: Record,
    expectations: Expectations | None = None,
    progress: Callable[[Outcome], None] | None = None,
    before: Callable[[str], None] | None = None,
) -> Report:
    """Run cases that were made for `device` and `record`; `before` is told the id of each as it begins."""
    report, known = Report(device.name, record=record), expectations or Expectations()
    start = time.perf_counter()
    with strict():
        for case in chosen:
            if known.is_unsupported(case.id):
                report.unsupported += 1
                continue
            if before is not None:
                before(case.id)
            outcome = attempt(case)
            if known.is_expected_failure(case.id):
                if outcome.problem:
                    report.known.append(outcome)
                else:
                    wrong = "passed, though it is listed as an expected failure"
                    report.failed.append(Outcome(case.id, wrong, outcome.seconds, case=case))
            else:
                report.outcomes.append(outcome)
                if outcome.problem:
                    report.failed.append(outcome)
                else:
                    report.passed += 1
            if progress is not None:
                progress(outcome)
            if outcome.lost:
                report.lost = True
                break
    report.seconds = time.perf_counter() - start
    return report


def attempt(case: Case) -> Outcome:
    """Run one case; whatever it raises is in the outcome."""
    start = time.perf_counter()
    try:
        case.run()
    except Exception as error:  # a device may fail in any way; each is one line of the report
        text = f"{type(error).__name__}: {error}"
        return Outcome(case.id, text, time.perf_counter() - start, traceback.format_exc(), case, error)
    return Outcome(case.id, "", time.perf_counter() - start, case=case)
