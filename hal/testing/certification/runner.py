"""The runner of the kit without pytest. It only reports outcomes; `certify` acts on them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceLostError
from polyhal.hal.testing.certification.run_record import RunRecord
from polyhal.hal.testing.kit.cases import Case, cases
from polyhal.hal.testing.kit.expectations import Expectations
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.scope import Scope


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one case: `problem` is empty if it passed; `detail` has the traceback of a failure."""

    id: str
    problem: str
    seconds: float
    detail: str = ""
    case: Case | None = None
    error: Exception | None = None

    @property
    def lost(self) -> bool:
        """Return whether the device was lost, so that later cases cannot run."""
        return isinstance(self.error, DeviceLostError)


@dataclass(slots=True)
class KitReport:
    """All outcomes on one device."""

    device: str
    passed: int = 0
    unsupported: int = 0
    known: list[Outcome] = field(default_factory=list)
    """Expected failures that failed."""
    failed: list[Outcome] = field(default_factory=list)
    """Failures, and expected failures that passed."""
    seconds: float = 0.0
    record: RunRecord = field(default_factory=RunRecord)
    """Resolution steps of the ops, and their errors."""
    outcomes: list[Outcome] = field(default_factory=list)
    """Outcomes of all cases that ran and were not expected to fail, in order."""
    lost: bool = False
    """True if the run ended early because the device was lost."""

    @property
    def ok(self) -> bool:
        """Return whether no case failed."""
        return not self.failed


def verify(
    device: Device | str,
    *,
    scope: Scope | None = None,
    only: str = "*",
    expectations: Expectations | None = None,
    progress: Callable[[Outcome], None] | None = None,
) -> KitReport:
    """Run every case whose id matches the glob `only`, with host fallbacks disabled and no quarantine.

    `progress` is called after every case. Raises DeviceUnavailableError; failed cases are in the report. The run ends early
    if the device is lost.
    """
    target, record = isolated(Device(device)), RunRecord()
    return run_cases(target, select_cases(target, scope or Scope(), only, record), record, expectations, progress)


def select_cases(device: Device, scope: Scope, only: str, record: RunRecord) -> list[Case]:
    """Return the cases whose id matches the glob `only`."""
    return list(cases(device, scope, record, wanted=lambda name: fnmatchcase(name, only)))


def run_cases(
    device: Device,
    selected: Iterable[Case],
    record: RunRecord,
    expectations: Expectations | None = None,
    progress: Callable[[Outcome], None] | None = None,
    before: Callable[[str], None] | None = None,
) -> KitReport:
    """Run cases that were created for `device` and `record`; `before` is called with the id of each."""
    report, known = KitReport(device.name, record=record), expectations or Expectations()
    start = time.perf_counter()
    with strict():
        for case in selected:
            if known.is_unsupported(case.id):
                report.unsupported += 1
                continue
            if before is not None:
                before(case.id)
            outcome = run_case(case)
            if known.is_expected_failure(case.id):
                if outcome.problem:
                    report.known.append(outcome)
                else:
                    problem = "passed, but it is listed as an expected failure"
                    report.failed.append(Outcome(case.id, problem, outcome.seconds, case=case))
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


def run_case(case: Case) -> Outcome:
    """Run one case; the outcome holds its exception."""
    start = time.perf_counter()
    try:
        case.run()
    except Exception as error:  # a device may fail in any way; each is one line of the report
        text = f"{type(error).__name__}: {error}"
        return Outcome(case.id, text, time.perf_counter() - start, traceback.format_exc(), case, error)
    return Outcome(case.id, "", time.perf_counter() - start, case=case)
