"""A certificate on the screen: a table per family or per op, limits, failures, the verdict. Made for 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from polyhal.cli.commands.devices import memory
from polyhal.hal import dtypes
from polyhal.hal.ops import OPS
from polyhal.hal.planning.resolution import Step
from polyhal.hal.testing.certification.certificate import Certificate, Finding, Result
from polyhal.hal.testing.certification.record import ANY
from polyhal.hal.testing.tools.coverage import letters

_FLOATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
_GROUPS = {"int": "int", "uint": "uint", "bool": "bool"}
"""Kinds of dtype that share a column, because their results are exact."""
_SHARED = (Step.NATIVE, Step.CORE, Step.COMPOSED, Step.HOST)
_SHOWN = 5
"""Failures that are shown in full unless all are asked for."""
_COUNTED = (
    "pairs of op and dtype by how they run on contiguous tensors; worst error in units in the last place of the result, "
    "against float64"
)
_LEGEND = (
    "V view of the input's memory, N native kernel, C core methods of the contract, D composed of other ops, "
    "H on the host, - not supported, ! wrong; of contiguous tensors; several letters: it depends on the call"
)


def print_certificate(console: Console, certificate: Certificate, *, verbose: bool) -> None:
    """Everything that a person wants to know; with `verbose`, of every op and every failure."""
    _heading(console, certificate)
    console.print()
    console.print(ops_table(certificate) if verbose else families_table(certificate))
    console.print(Text(_LEGEND if verbose else _COUNTED, style="dim"))
    console.print()
    _limits(console, certificate)
    _findings(console, certificate, verbose=verbose)
    _quarantine(console, certificate)
    _verdict(console, certificate)


def families_table(certificate: Certificate) -> Table:
    """One row per family: in how many pairs of op and dtype it runs how, and the largest error of any op."""
    out = _table("family", "ops", *(s.value for s in _SHARED), *_FLOATS.values(), "wrong")
    for family, ops in _families(certificate.results).items():
        steps: Counter[Step] = Counter()
        worst: dict[str, float] = {}
        wrong = 0
        for row in ops.values():
            for dtype, result in row.items():
                wrong += result.failed
                if result.how:
                    steps[_main(result.how)] += 1
                if result.worst_ulp is not None:
                    worst[dtype] = max(worst.get(dtype, 0.0), result.worst_ulp)
        # A view costs nothing, like a kernel that is already there.
        steps[Step.NATIVE] += steps.pop(Step.VIEW, 0)
        counts = (str(steps[s]) if steps[s] else "" for s in _SHARED)
        errors = (_ulp(worst.get(d)) for d in _FLOATS)
        out.add_row(family, str(len(ops)), *counts, *errors, Text(str(wrong) if wrong else "", style="bold red"))
    return out


def ops_table(certificate: Certificate) -> Table:
    """One row per op: how it runs in each dtype, and its largest error where results are rounded."""
    out = _table("op", *_FLOATS.values(), *_GROUPS.values(), "any")
    storage = frozenset(certificate.storage)
    for family, ops in _families(certificate.results).items():
        out.add_row(Text(family, style="bold"))
        for op, row in ops.items():
            floats = (_cell({d: row.get(d)}, op, storage) for d in _FLOATS)
            rest = (
                _cell({d.name: row.get(d.name) for d in dtypes.ALL if d.kind == kind}, op, storage) for kind in _GROUPS
            )
            only = row.get(ANY)
            # Checks about no dtype in particular, as of errors, say nothing here unless they fail.
            anything = _cell({ANY: only}, op, storage) if only is not None and (only.how or only.failed) else Text()
            out.add_row("  " + op, *floats, *rest, anything)
    return out


def _table(*titles: str) -> Table:
    out = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for k, title in enumerate(titles):
        out.add_column(title, no_wrap=True, justify="right" if k and titles[1] == "ops" else "left")
    return out


def _families(results: Mapping[str, Mapping[str, Result]]) -> dict[str, dict[str, Mapping[str, Result]]]:
    """The results by family, in the order of declaration; ops that this version does not know come last."""
    out: dict[str, dict[str, Mapping[str, Result]]] = {}
    for op in (*(o.name for o in OPS), *(o for o in results if o not in OPS)):
        if op in results:
            out.setdefault(OPS[op].family if op in OPS else "unknown", {})[op] = results[op]
    return out


def _main(how: Mapping[Step, int]) -> Step:
    """The way in which most calls ran."""
    return max(how, key=lambda s: how[s])


def _cell(row: Mapping[str, Result | None], op: str, storage: frozenset[str]) -> Text:
    """Letters for how the op runs in these dtypes, and the largest error."""
    given = [r for r in row.values() if r is not None]
    known = {d.name for d in OPS[op].dtypes} if op in OPS else set()
    lacking = [d for d in row if d in known and (d not in storage or row[d] is None)]
    text = letters(step for r in given for step in r.how) + ("-" if lacking else "")
    rounded = (
        r.worst_ulp for dtype, r in row.items() if r is not None and dtype in _FLOATS and r.worst_ulp is not None
    )
    worst = max(rounded, default=None)
    out = Text(f"{text} {_ulp(worst)}".rstrip())
    if any(r.failed for r in given):
        out = Text(f"{out}!", style="bold red")
    elif any(Step.HOST in r.how for r in given):
        out.stylize("yellow")
    return out


def _ulp(value: float | None) -> str:
    """A number of units in at most five characters; nothing where there was nothing to measure."""
    if value is None:
        return ""
    if value < 0.005:
        return "0"
    if value >= 1e4:
        return ">1e4"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _heading(console: Console, certificate: Certificate) -> None:
    info, identity, scope = certificate.info, certificate.identity, certificate.scope
    kind = str(info["type"]).replace("_", " ")
    console.print(
        f"{certificate.name}: {identity.device} ({kind}, {memory(info['memory'])}, {identity.driver})",
        style="bold",
        markup=False,
    )
    origin = f"{identity.distribution} {identity.version}".strip() or "this program"
    extent = "small" if scope["small"] else "full" if scope["full"] else "normal"
    chosen = "" if certificate.whole else f", only {scope['only']}"
    console.print(
        f"verified on {certificate.day} with polyhal {identity.polyhal}, backend from {origin}, Python "
        f"{certificate.python}; scope {extent}{chosen}, {certificate.seconds:.0f} s",
        markup=False,
    )


def _limits(console: Console, certificate: Certificate) -> None:
    limits = certificate.limits
    known = {
        "memory": memory(limits.get("memory", 0)),
        "largest allocation": memory(limits.get("max_allocation", 0)),
        "local memory": f"{limits.get('local_memory', 0) / 1024:.0f} KiB",
        "work-group": str(limits.get("max_group_size", 0)),
        "groups per axis": str(limits.get("max_groups_per_axis", 0)),
        "compute units": str(limits.get("compute_units", 0)),
    }
    unknown = {"unknown", "0", "0 KiB"}
    told = ", ".join(f"{name} {value}" for name, value in known.items() if value not in unknown)
    every = [d.name for d in dtypes.ALL]
    console.print(f"limits: {told or 'none known'}", markup=False)
    console.print(
        f"dtypes: stores {_dtypes(certificate.storage, every)}, computes in {_dtypes(certificate.compute, every)}"
    )


def _dtypes(have: Iterable[str], every: list[str]) -> str:
    missing = [d for d in every if d not in set(have)]
    return f"all but {', '.join(missing)}" if missing else "all"


def _findings(console: Console, certificate: Certificate, *, verbose: bool) -> None:
    wrong = [f for f in certificate.findings if not f.right]
    mended = [f for f in certificate.findings if f.right]
    # What follows from another failure is worth a line only to those who want all of them.
    told = mended if verbose else [f for f in mended if f.now.startswith("quarantined")]
    for title, style, found in (("wrong", "bold red", wrong), ("mended", "bold yellow", told)):
        shown = found if verbose else found[:_SHOWN]
        for finding in shown:
            console.print()
            _finding(console, finding, title, style)
        if len(shown) < len(found):
            console.print(f"\n{len(found) - len(shown)} more are {title}; --verbose shows them", style=style)


def _finding(console: Console, finding: Finding, title: str, style: str) -> None:
    console.print(f"{title}: {finding.case}", style=style, markup=False)
    found = f"{finding.got} at {finding.place}" if finding.place else ""
    rows = {
        "call": finding.call,
        "problem": finding.problem,
        "found": found,
        "expected": finding.expected,
        "ran as": finding.how,
        "now": finding.now,
    }
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        if value:
            table.add_row(name, Text(value))
    console.print(Padding(table, (0, 0, 0, 2)))


def _quarantine(console: Console, certificate: Certificate) -> None:
    if not certificate.quarantined:
        return
    console.print("\nin quarantine, until the driver or the software changes", style="bold")
    for entry in certificate.quarantined:
        console.print(Padding(Text(f"{entry.kernel}: {entry.failure}"), (0, 0, 0, 2)))


def _verdict(console: Console, certificate: Certificate) -> None:
    checked = certificate.passed + certificate.failed
    left = [
        f"{n} {what}"
        for n, what in ((certificate.unsupported, "unsupported"), (certificate.expected_failures, "expected to fail"))
        if n
    ]
    beside = f" ({', '.join(left)})" if left else ""
    console.print()
    if certificate.correct and not certificate.quarantined:
        console.print(f"correct: all {checked} checks pass{beside}", style="bold green")
    elif certificate.correct:
        count = len(certificate.quarantined)
        kernels = f"{count} kernel is" if count == 1 else f"{count} kernels are"
        console.print(f"correct now: all {checked} checks pass, {kernels} in quarantine{beside}", style="bold yellow")
    else:
        lost = "" if certificate.complete else "; the device was lost before the end"
        console.print(f"WRONG: {certificate.failed} of {checked} checks fail{beside}{lost}", style="bold red")
