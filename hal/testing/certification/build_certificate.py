"""Build a certificate from a run of the kit: results per op and dtype, and a finding per failed case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from polyhal.hal.compile.planning.quarantine import EMPTY, Quarantine
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.device import Device
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.ops import OPS
from polyhal.hal.system.reference.tolerances import ResultError
from polyhal.hal.testing.certification.certificate import Certificate, Finding, OpResult, describe
from polyhal.hal.testing.certification.diagnosis import Diagnosis, failed_op
from polyhal.hal.testing.certification.resolution_steps import resolution_steps
from polyhal.hal.testing.certification.run_record import ANY, OpRecord, RunRecord
from polyhal.hal.testing.certification.runner import KitReport, Outcome
from polyhal.hal.testing.kit.failures import failed_call, failed_resolution, one_line
from polyhal.hal.testing.kit.isolation import isolated
from polyhal.hal.testing.kit.scope import Scope

_RIGHT = "correct without the kernels quarantined for other failures"
_STILL_USED = "still wrong: kernels found by other failures are in use; run polyhal verify without --no-quarantine"
_BEST_STEPS = frozenset({ResolutionStep.NATIVE, ResolutionStep.VIEW})
"""Best steps: an op that uses one of them on any layout also uses it on contiguous tensors."""
_FLAKY = "flaky: correct when repeated, and no kernel could be identified as the cause"
_REPLACEMENTS = {
    ResolutionStep.COMPOSED: "as its decomposition",
    ResolutionStep.CORE: "as a core method",
    ResolutionStep.NATIVE: "on another native kernel",
}
"""Replacements of a quarantined kernel, the most informative step first."""


@dataclass(slots=True)
class KitRun:
    """The reports and diagnoses of one run of `certify`."""

    first: KitReport
    last: KitReport
    """Report of the repeated cases; the first report if none were repeated."""
    quarantine: Quarantine
    """Final quarantine."""
    diagnoses: dict[str, Diagnosis]
    """Diagnoses of failed cases, by case."""
    crashed: str
    """Skipped case in which an earlier process ended; empty if there is none."""
    complete: bool
    kept: bool = True
    """True if the quarantine stays in effect after the run. If not, the verdict applies to the first report."""


def build_certificate(device: Device, scope: Scope, only: str, run: KitRun) -> Certificate:
    """Build the certificate of a run."""
    first, last = run.first, run.last
    final = {o.id: o for o in first.outcomes} | ({o.id: o for o in last.outcomes} if run.kept else {})
    wrong = {o.id: o for o in first.failed} | {o.id: o for o in last.failed}
    still = {o.id for o in last.failed}
    findings = [_finding(o, o.id not in still, run.diagnoses.get(o.id), run) for o in wrong.values()]
    if run.crashed:
        findings.append(_crash(run.crashed))
    return Certificate(
        **describe(device, scope, only),
        seconds=round(first.seconds + (last.seconds if last is not first else 0.0), 3),
        passed=sum(not o.problem for o in final.values()),
        unsupported=first.unsupported,
        expected_failures=len(first.known),
        complete=run.complete,
        results=_results(isolated(device, run.quarantine if run.kept else EMPTY), scope, final.values(), run),
        findings=tuple(findings),
        quarantined=run.quarantine.entries if run.kept else (),
    )


def _results(device: Device, scope: Scope, outcomes: Iterable[Outcome], run: KitRun) -> dict[str, dict[str, OpResult]]:
    """Return the measurements of the last run of each case, and the numbers of cases."""
    cells = run.first.record.cells | (run.last.record.cells if run.kept else {})
    counts: dict[tuple[str, str], list[int]] = {key: [0, 0] for key in cells}
    for outcome in outcomes:
        case = outcome.case
        if case is not None and case.op:
            counts.setdefault((case.op, case.dtype), [0, 0])[bool(outcome.problem)] += 1
    out: dict[str, dict[str, OpResult]] = {}
    for (op, dtype), (passed, failed) in counts.items():
        cell = cells.get((op, dtype), OpRecord())
        how = cell.steps if _BEST_STEPS.issuperset(cell.steps) or not run.complete else _how(device, op, dtype, scope)
        ulp = cell.worst_ulp
        rounded = None if ulp is None else float(f"{ulp:.4g}")
        out.setdefault(op, {})[dtype] = OpResult(dict(how), rounded, passed, failed)
    return out


def _how(device: Device, op: str, dtype: str, scope: Scope) -> Counter[ResolutionStep]:
    """Return the resolution steps of the op on contiguous tensors, because the checks may only have used other layouts."""
    return resolution_steps(device, OPS[op], None if dtype == ANY else as_dtype(dtype), scope)


def _finding(outcome: Outcome, right: bool, diagnosis: Diagnosis | None, run: KitRun) -> Finding:
    """Describe a failed case. `right`: whether it passed without the kernels found to be wrong."""
    error, case = outcome.error, outcome.case
    result = error if isinstance(error, ResultError) else None
    return Finding(
        case=outcome.id,
        op=case.op if case is not None else "",
        dtype=case.dtype if case is not None else "",
        call=failed_call(error) if error is not None else "",
        problem=result.summary if result is not None else one_line(error) if error is not None else outcome.problem,
        place=result.place if result is not None else "",
        got=result.got if result is not None else "",
        expected=result.expected if result is not None else "",
        how=failed_resolution(error) if error is not None else "",
        now=_now(outcome, right, diagnosis, run),
        right=right and run.kept,
    )


def _crash(case: str) -> Finding:
    op, dtype = (*case.split("/")[1:], "", "")[:2] if not case.startswith("contract/") else ("", "")
    problem = "the process ended during this check in an earlier run"
    now = "skipped in this run; no kernel can be quarantined to prevent it"
    return Finding(case, op, dtype, "", problem, "", "", "", "", now, right=False)


def _now(outcome: Outcome, right: bool, diagnosis: Diagnosis | None, run: KitRun) -> str:
    """Return the state after the run, in a sentence."""
    kernels = "; ".join(e.kernel for e in diagnosis.entries) if diagnosis is not None else ""
    if outcome.lost:
        rest = "run polyhal verify again for the remaining cases"
        state = "quarantined" if run.kept else "still in use"
        return f"{state}: {kernels}; {rest}" if kernels else f"the device was lost; {rest}"
    if diagnosis is None:
        return "remove it from the list" if outcome.error is None else "not diagnosed"
    if right and not run.kept:
        return f"still in use: {kernels}; run polyhal verify without --no-quarantine" if kernels else _STILL_USED
    if right:
        return f"quarantined: {kernels}{_replacement(outcome, run.last.record)}" if kernels else _RIGHT
    if not failed_op(outcome):
        return "still wrong: a required member of the contract cannot be replaced"
    return "still wrong: no kernel that could be quarantined is the cause" if diagnosis.reproducible else _FLAKY


def _replacement(outcome: Outcome, after: RunRecord) -> str:
    """Return how the op of a case runs with the quarantine in effect; empty if unknown."""
    case = outcome.case
    cell = after.cells.get((case.op, case.dtype)) if case is not None else None
    way = next((text for step, text in _REPLACEMENTS.items() if cell is not None and step in cell.steps), "")
    return f"; it now runs {way}, correctly" if way else ""
