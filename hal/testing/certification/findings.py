"""What an examination found, put together as a certificate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from polyhal.hal.device import Device
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.kernels.quarantine import Quarantine
from polyhal.hal.ops import OPS
from polyhal.hal.planning.resolution import ResolutionStep
from polyhal.hal.testing.certification.certificate import Certificate, Finding, Result, describe
from polyhal.hal.testing.certification.diagnosis import Diagnosis, failed_op
from polyhal.hal.testing.certification.record import ANY, Cell, Record
from polyhal.hal.testing.certification.verification import Outcome, Report
from polyhal.hal.testing.kit.failures import ResultError, call_of, gist, how_of
from polyhal.hal.testing.kit.isolation import isolated
from polyhal.hal.testing.kit.scope import Scope
from polyhal.hal.testing.tools.resolution_steps import resolution_steps

_RIGHT = "right without the kernels that other failures put in quarantine"
_SETTLED = frozenset({ResolutionStep.NATIVE, ResolutionStep.VIEW})
"""Steps that an op which takes them on any tensor takes on contiguous ones too: there are no better ones."""
_UNSTEADY = "unsteady: right when it was repeated, and no kernel could be told to be the cause"
_INSTEAD = {
    ResolutionStep.COMPOSED: "as its decomposition",
    ResolutionStep.CORE: "as a core method",
    ResolutionStep.NATIVE: "on another native kernel",
}
"""In the order in which they tell most about what takes the place of a kernel."""


@dataclass(slots=True)
class Course:
    """How an examination went."""

    first: Report
    last: Report
    """Of the cases that were checked again; the first report where none were."""
    entries: Quarantine
    """What is passed over in the end."""
    diagnoses: dict[str, Diagnosis]
    """By case; of failed cases only."""
    crashed: str
    """A case that was left out because the process ended in it the last time; empty if none was."""
    complete: bool


def certify(device: Device, scope: Scope, only: str, course: Course) -> Certificate:
    """The certificate of an examination."""
    first, last = course.first, course.last
    final = {o.id: o for o in first.outcomes} | {o.id: o for o in last.outcomes}
    wrong = {o.id: o for o in first.failed} | {o.id: o for o in last.failed}
    still = {o.id for o in last.failed}
    findings = [_finding(o, o.id not in still, course.diagnoses.get(o.id), last.record) for o in wrong.values()]
    if course.crashed:
        findings.append(_crash(course.crashed))
    return Certificate(
        **describe(device, scope, only),
        seconds=round(first.seconds + (last.seconds if last is not first else 0.0), 3),
        passed=sum(not o.problem for o in final.values()),
        unsupported=first.unsupported,
        expected_failures=len(first.known),
        complete=course.complete,
        results=_results(isolated(device, course.entries), scope, final.values(), course),
        findings=tuple(findings),
        quarantined=course.entries.entries,
    )


def _results(device: Device, scope: Scope, outcomes: Iterable[Outcome], course: Course) -> dict[str, dict[str, Result]]:
    """Cells of the last run of each case, with the cases counted."""
    cells = course.first.record.cells | course.last.record.cells
    counts: dict[tuple[str, str], list[int]] = {key: [0, 0] for key in cells}
    for outcome in outcomes:
        case = outcome.case
        if case is not None and case.op:
            counts.setdefault((case.op, case.dtype), [0, 0])[bool(outcome.problem)] += 1
    out: dict[str, dict[str, Result]] = {}
    for (op, dtype), (passed, failed) in counts.items():
        cell = cells.get((op, dtype), Cell())
        how = cell.steps if _SETTLED.issuperset(cell.steps) or not course.complete else _how(device, op, dtype, scope)
        ulp = cell.worst_ulp
        rounded = None if ulp is None else float(f"{ulp:.4g}")
        out.setdefault(op, {})[dtype] = Result(dict(how), rounded, passed, failed)
    return out


def _how(device: Device, op: str, dtype: str, scope: Scope) -> Counter[ResolutionStep]:
    """How the op runs on contiguous tensors: the check may have seen it on others only."""
    return resolution_steps(device, OPS[op], None if dtype == ANY else as_dtype(dtype), scope)


def _finding(outcome: Outcome, right: bool, diagnosis: Diagnosis | None, after: Record) -> Finding:
    error, case = outcome.error, outcome.case
    result = error if isinstance(error, ResultError) else None
    return Finding(
        case=outcome.id,
        op=case.op if case is not None else "",
        dtype=case.dtype if case is not None else "",
        call=call_of(error) if error is not None else "",
        problem=result.summary if result is not None else gist(error) if error is not None else outcome.problem,
        place=result.place if result is not None else "",
        got=result.got if result is not None else "",
        expected=result.expected if result is not None else "",
        how=how_of(error) if error is not None else "",
        now=_now(outcome, right, diagnosis, after),
        right=right,
    )


def _crash(case: str) -> Finding:
    op, dtype = (*case.split("/")[1:], "", "")[:2] if not case.startswith("contract/") else ("", "")
    problem = "the process ended during this check, the last time"
    now = "left out this time; nothing can be passed over that would spare the process"
    return Finding(case, op, dtype, "", problem, "", "", "", "", now, right=False)


def _now(outcome: Outcome, right: bool, diagnosis: Diagnosis | None, after: Record) -> str:
    """What happens from now on, in a sentence."""
    passed_over = "; ".join(e.kernel for e in diagnosis.entries) if diagnosis is not None else ""
    if outcome.lost:
        rest = "run polyhal verify again for the rest"
        return f"quarantined: {passed_over}; {rest}" if passed_over else f"the device was lost; {rest}"
    if diagnosis is None:
        return "take it off the list" if outcome.error is None else "not looked into"
    if right:
        return f"quarantined: {passed_over}{_instead(outcome, after)}" if passed_over else _RIGHT
    if not failed_op(outcome):
        return "still wrong: nothing can take the place of a required member of the contract"
    return "still wrong: no kernel that could be passed over is the cause" if diagnosis.steady else _UNSTEADY


def _instead(outcome: Outcome, after: Record) -> str:
    """How the op of a case runs with the quarantine in force, where that is known."""
    case = outcome.case
    cell = after.cells.get((case.op, case.dtype)) if case is not None else None
    taken = next((text for step, text in _INSTEAD.items() if cell is not None and step in cell.steps), "")
    return f"; it runs {taken} now, and right" if taken else ""
