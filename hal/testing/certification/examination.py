"""From a run of the kit to a device that computes correctly: find the kernels that fail, pass them over, check again."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceLostError
from polyhal.hal.kernels import quarantine
from polyhal.hal.kernels.quarantine import EMPTY, Entry, Quarantine
from polyhal.hal.testing.certification.certificate import Certificate
from polyhal.hal.testing.certification.diagnosis import Diagnosis, blame, culprits_of_a_crash, diagnose
from polyhal.hal.testing.certification.findings import Course, certify
from polyhal.hal.testing.certification.journal import Journal
from polyhal.hal.testing.certification.record import Record
from polyhal.hal.testing.certification.verification import Outcome, Report, run, selected
from polyhal.hal.testing.kit.cases import cases
from polyhal.hal.testing.kit.expectations import Expectations
from polyhal.hal.testing.kit.isolation import isolated
from polyhal.hal.testing.kit.scope import Scope

_ORDER = ("forward", "gradient", "second_order", "decomposition", "errors", "contract")
"""Kinds of cases in which kernels are looked for first: what a forward case shows explains failures of the others."""


class Observer(Protocol):
    """Who is told how an examination goes on."""

    def started(self, cases: int) -> None: ...

    def ran(self, outcome: Outcome) -> None: ...

    def stage(self, text: str) -> None: ...


class Silent:
    """An observer that nobody sees."""

    def started(self, cases: int) -> None:
        """Nobody asks."""

    def ran(self, outcome: Outcome) -> None:
        """Nobody asks."""

    def stage(self, text: str) -> None:
        """Nobody asks."""


def examine(
    device: Device | str,
    *,
    scope: Scope | None = None,
    only: str = "*",
    expectations: Expectations | None = None,
    observer: Observer | None = None,
    keep: bool = True,
) -> Certificate:
    """Run the kit on a device, quarantine the kernels that fail, and check again what they had to do with.

    With `keep` the quarantine is written to the disk and holds from now on, in this process too; without, it serves the
    checks only. Kernels that a device or a process did not survive are not tried again. Raises DeviceUnavailableError; a
    case that fails, or a device that is lost, is in the certificate.
    """
    target, extent, watch = Device(device), scope or Scope(), observer or Silent()
    known, crashed, journal = _deadly(target, keep), "", Journal(target)
    if keep and (crashed := journal.left()):
        known |= culprits_of_a_crash(target, crashed, known)
        _keep(target, known, set())
    trial, record = isolated(target, known), Record()
    chosen = selected(trial, extent, only, record)
    if crashed and not any(e.case == crashed for e in known.entries):
        chosen = [c for c in chosen if c.id != crashed]  # nothing can be passed over that would spare the process
    else:
        crashed = ""
    watch.started(len(chosen))
    if keep:
        with journal:
            report = run(trial, chosen, record, expectations, watch.ran, journal.running)
    else:
        report = run(trial, chosen, record, expectations, watch.ran)
    course = Course(report, report, known, {}, crashed, complete=not report.lost)
    if report.lost:
        entry = blame(trial, report.outcomes[-1])
        course.diagnoses[report.outcomes[-1].id] = Diagnosis((entry,) if entry else ())
        course.entries |= (entry,) if entry else ()
    elif report.failed:
        try:
            _mend(target, course, extent, expectations, watch)
        except DeviceLostError:
            course.complete = False
    if keep:
        course.entries = _keep(target, course.entries, {o.id for o in report.outcomes})
    return certify(target, extent, only, course)


def _mend(device: Device, course: Course, scope: Scope, expectations: Expectations | None, observer: Observer) -> None:
    """Find the kernels behind the failures and check again without them. Raises DeviceLostError."""
    failed = [o for o in course.first.failed if o.error is not None]  # the rest are expected failures that passed
    observer.stage(f"looking for the kernels behind {_count(len(failed), 'failed case')}")
    before = course.entries
    for outcome in sorted(failed, key=lambda o: _ORDER.index(o.id.partition("/")[0])):
        # A kernel that is found early explains later cases.
        found = course.diagnoses[outcome.id] = diagnose(device, outcome, scope, course.entries)
        course.entries = _merged(course.entries | found.entries)
    if course.entries != before:
        observer.stage(f"checking again without {_count(len(course.entries.entries), 'kernel')}")
        course.last = _again(device, course.first, course.entries, scope, expectations)


def _deadly(device: Device, keep: bool) -> Quarantine:
    """The kernels that are not to be tried again."""
    return Quarantine(tuple(e for e in quarantine.load(device).entries if e.fatal)) if keep else EMPTY


def _merged(entries: Quarantine) -> Quarantine:
    """One entry per kernel, for all layouts in which any was found to fail."""
    by: dict[tuple[str, str, str], Entry] = {}
    for e in entries.entries:
        first = by.setdefault((e.step, e.op, e.dtype), e)
        layouts = tuple(dict.fromkeys((*first.layouts, *e.layouts)))
        by[e.step, e.op, e.dtype] = replace(first, layouts=layouts, fatal=first.fatal or e.fatal)
    return Quarantine(tuple(by.values()))


def _again(
    device: Device, before: Report, entries: Quarantine, scope: Scope, expectations: Expectations | None
) -> Report:
    """The failed cases and all others of the ops in quarantine, with these passed over."""
    target, record = isolated(device, entries), Record()
    failed, ran = {o.id for o in before.failed}, {o.id for o in before.outcomes}
    ops = {e.op for e in entries.entries}
    chosen = [c for c in cases(target, scope, record) if c.id in failed or (c.op in ops and c.id in ran)]
    return run(target, chosen, record, expectations)


def _keep(device: Device, found: Quarantine, ran: set[str]) -> Quarantine:
    """Write the list, what stood there before and was not looked at this time included. Returns it."""
    before = quarantine.load(device)
    left = (e for e in before.entries if e.fatal or e.case not in ran)
    merged = _merged(found | left)
    if merged.entries != before.entries or before.ignored:
        quarantine.store(device, merged.entries)
    return merged


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")
