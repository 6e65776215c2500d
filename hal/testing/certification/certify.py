"""`polyhal verify`: run the kit on a device, quarantine the kernels that fail, and check again without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from polyhal.hal.compile.planning import quarantine
from polyhal.hal.compile.planning.quarantine import EMPTY, Quarantine, QuarantineEntry
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceLostError
from polyhal.hal.testing.certification.build_certificate import KitRun, build_certificate
from polyhal.hal.testing.certification.certificate import Certificate
from polyhal.hal.testing.certification.crash_journal import Journal
from polyhal.hal.testing.certification.diagnosis import Diagnosis, crash_suspects, diagnose, loss_suspect
from polyhal.hal.testing.certification.run_record import RunRecord
from polyhal.hal.testing.certification.runner import KitReport, Outcome, run_cases, select_cases
from polyhal.hal.testing.kit.cases import cases
from polyhal.hal.testing.kit.expectations import Expectations
from polyhal.hal.testing.kit.isolation import isolated
from polyhal.hal.testing.kit.scope import Scope

_ORDER = ("forward", "gradient", "second_order", "decomposition", "errors", "contract")
"""Order in which failed cases are diagnosed, by kind: kernels found by a forward case explain other failures."""


class KitObserver(Protocol):
    """Receives the progress of `certify`."""

    def started(self, cases: int) -> None:
        """Called once, with the number of cases."""

    def ran(self, outcome: Outcome) -> None:
        """Called after each case."""

    def stage(self, text: str) -> None:
        """Called as each later stage begins."""


class SilentObserver:
    """An observer that ignores everything."""

    def started(self, cases: int) -> None:
        """Ignore the number of cases."""

    def ran(self, outcome: Outcome) -> None:
        """Ignore the outcome."""

    def stage(self, text: str) -> None:
        """Ignore the stage."""


def certify(
    device: Device | str,
    *,
    scope: Scope | None = None,
    only: str = "*",
    expectations: Expectations | None = None,
    observer: KitObserver | None = None,
    keep: bool = True,
) -> Certificate:
    """Run the kit on a device, quarantine the kernels that fail, and repeat the cases that they affect.

    With `keep`, the quarantine is stored and takes effect immediately, also in this process. Otherwise it only serves
    the diagnosis, and the certificate reports its kernels as wrong and in use. Kernels that ended the device or a
    process in an earlier run are not run again. Raises DeviceUnavailableError; failed cases and a lost device are in
    the certificate.
    """
    target, scope, observer = Device(device), scope or Scope(), observer or SilentObserver()
    known, crashed, journal = _fatal_entries(target, keep), "", Journal(target)
    if keep and (crashed := journal.crashed()):
        known |= crash_suspects(target, crashed, known)
        _store(target, known, set())
    trial, record = isolated(target, known), RunRecord()
    selected = select_cases(trial, scope, only, record)
    if crashed and not any(e.case == crashed for e in known.entries):
        selected = [c for c in selected if c.id != crashed]  # no kernel could be quarantined to protect the process
    else:
        crashed = ""
    observer.started(len(selected))
    if keep:
        with journal:
            report = run_cases(trial, selected, record, expectations, observer.ran, journal.running)
    else:
        report = run_cases(trial, selected, record, expectations, observer.ran)
    run = KitRun(report, report, known, {}, crashed, complete=not report.lost, kept=keep)
    if report.lost:
        entry = loss_suspect(trial, report.outcomes[-1])
        run.diagnoses[report.outcomes[-1].id] = Diagnosis((entry,) if entry else ())
        run.quarantine |= (entry,) if entry else ()
    elif report.failed:
        try:
            _quarantine_failures(target, run, scope, expectations, observer)
        except DeviceLostError:
            run.complete = False
    if keep:
        run.quarantine = _store(target, run.quarantine, {o.id for o in report.outcomes})
    return build_certificate(target, scope, only, run)


def _quarantine_failures(
    device: Device, run: KitRun, scope: Scope, expectations: Expectations | None, observer: KitObserver
) -> None:
    """Find the kernels behind the failures and repeat the affected cases without them. Raises DeviceLostError."""
    failed = [o for o in run.first.failed if o.error is not None]  # the others are expected failures that passed
    observer.stage(f"looking for the kernels behind {_count(len(failed), 'failed case')}")
    before = run.quarantine
    for outcome in sorted(failed, key=lambda o: _ORDER.index(o.id.partition("/")[0])):
        diagnosis = run.diagnoses[outcome.id] = diagnose(device, outcome, scope, run.quarantine)
        run.quarantine = _merged(run.quarantine | diagnosis.entries)
    if run.quarantine != before:
        observer.stage(f"checking again without {_count(len(run.quarantine.entries), 'kernel')}")
        run.last = _repeat_affected(device, run.first, run.quarantine, scope, expectations)


def _fatal_entries(device: Device, keep: bool) -> Quarantine:
    """Return entries of the kernels that must not run again."""
    return Quarantine(tuple(e for e in quarantine.load(device).entries if e.fatal)) if keep else EMPTY


def _merged(entries: Quarantine) -> Quarantine:
    """Merge entries to one per kernel, for all layouts in which it failed."""
    by_kernel: dict[tuple[str, str, str], QuarantineEntry] = {}
    for e in entries.entries:
        first = by_kernel.setdefault((e.step, e.op, e.dtype), e)
        layouts = tuple(dict.fromkeys((*first.layouts, *e.layouts)))
        by_kernel[e.step, e.op, e.dtype] = replace(first, layouts=layouts, fatal=first.fatal or e.fatal)
    return Quarantine(tuple(by_kernel.values()))


def _repeat_affected(
    device: Device, before: KitReport, entries: Quarantine, scope: Scope, expectations: Expectations | None
) -> KitReport:
    """Run the failed cases and all others of the quarantined ops again, with the quarantine in effect."""
    target, record = isolated(device, entries), RunRecord()
    failed, ran = {o.id for o in before.failed}, {o.id for o in before.outcomes}
    ops = {e.op for e in entries.entries}
    affected = [
        c for c in cases(target, scope, record, wanted=(failed | ran).__contains__) if c.id in failed or c.op in ops
    ]
    return run_cases(target, affected, record, expectations)


def _store(device: Device, entries: Quarantine, ran: set[str]) -> Quarantine:
    """Store the quarantine, with earlier entries of cases that did not run now. Returns the merged quarantine."""
    before = quarantine.load(device)
    earlier = (e for e in before.entries if e.fatal or e.case not in ran)
    merged = _merged(entries | earlier)
    if merged.entries != before.entries or before.ignored:
        quarantine.store(device, merged.entries)
    return merged


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")
