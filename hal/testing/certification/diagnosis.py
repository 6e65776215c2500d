"""Diagnosis of a failed case: find the kernel without which the case passes.

The case is repeated with one more kernel quarantined each time, until it passes or all kernels are quarantined; then
the set is minimized. This delta debugging treats the case as a black box, and also finds a wrong kernel inside a
gradient or a decomposition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from polyhal.hal.compile.planning.quarantine import Quarantine, QuarantineEntry
from polyhal.hal.compile.planning.resolution import LayoutClass, Resolution, ResolutionStep
from polyhal.hal.device import Device
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import Feature
from polyhal.hal.testing.certification.runner import Outcome, run_case
from polyhal.hal.testing.kit.cases import op_cases
from polyhal.hal.testing.kit.failures import one_line
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.scope import Scope


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Kernels to quarantine for a case to pass. Without entries, no kernel that could be quarantined is the cause."""

    entries: tuple[QuarantineEntry, ...] = ()
    reproducible: bool = True
    """True if the case fails again when repeated."""


def diagnose(device: Device, failed: Outcome, scope: Scope, known: Quarantine) -> Diagnosis:
    """Find the kernels behind `failed`, beyond those already `known`. Raises DeviceLostError if the device is lost."""
    trial = _Trial(device, failed, scope)
    with strict():
        passed, used = trial.run(known)
        if passed:
            # A race may not recur; the kernel of a forward case is suspect anyway.
            own = _own(used, failed) if _kind(failed) == "forward" and not _spared(used, known) else None
            return Diagnosis((trial.entry(own),) if own is not None else (), reproducible=False)
        culprits: list[QuarantineEntry] = []
        while not passed:
            suspects = trial.suspects(used, known | culprits)
            if not suspects:
                return Diagnosis()
            alone = next((e for e in suspects if trial.run(known | [*culprits, e])[0]), None)
            if alone is not None:
                culprits.append(alone)
            else:
                # The op of the case may use its next kernel only after the first one is quarantined.
                culprits += [e for e in suspects if e.op == failed_op(failed)] or suspects
            passed, used = trial.run(known | culprits)
        for entry in tuple(culprits):
            fewer = [e for e in culprits if e is not entry]
            if fewer and trial.run(known | fewer)[0]:
                culprits = fewer
        for entry in tuple(culprits):
            others = [e for e in culprits if e is not entry]
            culprits = [*others, trial.narrowed(entry, known | others, used)]
    return Diagnosis(tuple(culprits))


def failed_op(outcome: Outcome) -> str:
    """Return the op that a case tests; empty for cases of the contract."""
    return outcome.case.op if outcome.case is not None else ""


def loss_suspect(device: Device, failed: Outcome) -> QuarantineEntry | None:
    """Return the entry for the kernel of a forward case in which the device was lost. Does not run kernels."""
    resolutions = (plan.resolution for key, plan in device.plans.items() if key[0].name == failed_op(failed))
    own = _own((r for r in resolutions if failed.case is not None and r.dtype == failed.case.dtype), failed)
    return replace(_entry(own, failed), fatal=True) if own is not None and _kind(failed) == "forward" else None


def crash_suspects(device: Device, case: str, known: Quarantine) -> tuple[QuarantineEntry, ...]:
    """Return the entry for the kernel of a forward case during which a process ended; none for other cases.

    It is the native kernel, if there may be one, or the core member if the native kernel is already quarantined.
    """
    kind, op, dtype = (*case.split("/"), "", "")[:3]
    if kind != "forward" or op not in OPS:
        return ()
    native = bool(device.features & Feature.LOWERING) and not _names(known, ResolutionStep.NATIVE, op, dtype)
    step = ResolutionStep.NATIVE if native else ResolutionStep.CORE
    today = datetime.now(UTC).date().isoformat()
    return (
        QuarantineEntry(
            step, op, dtype, tuple(LayoutClass), "the process ended during the check", case, today, fatal=True
        ),
    )


def _names(known: Quarantine, step: ResolutionStep, op: str, dtype: str) -> bool:
    return any(known.find(step, op, dtype, layout) for layout in LayoutClass)


class _Trial:
    """One case, to be repeated with different quarantines."""

    def __init__(self, device: Device, failed: Outcome, scope: Scope) -> None:
        self._device = device
        self._failed = failed
        self._scope = scope

    def run(self, quarantine: Quarantine) -> tuple[bool, list[Resolution]]:
        """Run the case. Returns whether it passes, and all resolutions that it used."""
        target = isolated(self._device, quarantine)
        used: list[Resolution] = []
        target.planner.record = used
        op = failed_op(self._failed)
        case = (
            next((c for c in op_cases(target, OPS[op], self._scope) if c.id == self._failed.id), None) if op else None
        )
        if case is None:
            return False, []  # a case of the contract does not run ops
        outcome = run_case(case)
        if outcome.lost:
            assert outcome.error is not None
            raise outcome.error
        return not outcome.problem, used

    def suspects(self, used: Iterable[Resolution], known: Quarantine) -> list[QuarantineEntry]:
        """Return entries for all kernels in use, kernels of the tested op first."""
        suspects: dict[tuple[ResolutionStep, str, str], QuarantineEntry] = {}
        for resolution in used:
            # If the resolution raised, the step is unknown and may be either.
            for step in (resolution.step,) if resolution.step else (ResolutionStep.NATIVE, ResolutionStep.CORE):
                quarantined = known.find(step, resolution.op, resolution.dtype, resolution.layout)
                if step in (ResolutionStep.NATIVE, ResolutionStep.CORE) and quarantined is None:
                    suspect = replace(resolution, step=step)
                    suspects.setdefault((step, resolution.op, resolution.dtype), _entry(suspect, self._failed))
        return sorted(suspects.values(), key=lambda e: e.op != failed_op(self._failed))

    def entry(self, resolution: Resolution) -> QuarantineEntry:
        return _entry(resolution, self._failed)

    def narrowed(self, entry: QuarantineEntry, others: Quarantine, used: Iterable[Resolution]) -> QuarantineEntry:
        """Return `entry` without the layouts in which its kernel works."""
        tried = {r.layout for r in used if (r.op, r.dtype) == (entry.op, entry.dtype)}
        if len(tried) < 2 or entry.step is not ResolutionStep.NATIVE:
            return entry
        for layout in tried:
            fewer = tuple(x for x in entry.layouts if x is not layout)
            if fewer and self.run(others | [replace(entry, layouts=fewer)])[0]:
                entry = replace(entry, layouts=fewer)
        return entry


def _own(used: Iterable[Resolution], outcome: Outcome) -> Resolution | None:
    mine = (r for r in used if r.op == failed_op(outcome) and r.step in (ResolutionStep.NATIVE, ResolutionStep.CORE))
    return next(mine, None)


def _spared(used: Iterable[Resolution], known: Quarantine) -> bool:
    """Return whether a known entry replaced a kernel, which explains why the case now passes."""
    return any(
        known.find(s, r.op, r.dtype, r.layout) for r in used for s in (ResolutionStep.NATIVE, ResolutionStep.CORE)
    )


def _kind(outcome: Outcome) -> str:
    return outcome.case.kind if outcome.case is not None else ""


def _entry(resolution: Resolution, outcome: Outcome) -> QuarantineEntry:
    assert resolution.step is not None
    return QuarantineEntry(
        resolution.step,
        resolution.op,
        resolution.dtype,
        tuple(LayoutClass),
        one_line(outcome.error) if outcome.error is not None else outcome.problem,
        outcome.id,
        datetime.now(UTC).date().isoformat(),
    )
