"""A certificate of `polyhal verify` as text: a table per family or per op, limits, failures, and the verdict.

It fits into 80 columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from polyhal.cli.display import memory
from polyhal.hal import dtypes
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.ops import OPS
from polyhal.hal.testing.certification.certificate import Certificate, Finding, OpResult
from polyhal.hal.testing.certification.resolution_steps import step_letters
from polyhal.hal.testing.certification.run_record import ANY

_FLOATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
_GROUPS = {"int": "int", "uint": "uint", "bool": "bool"}
"""Kinds of dtype that share a column because their results are exact."""
_COUNTED_STEPS = (ResolutionStep.NATIVE, ResolutionStep.CORE, ResolutionStep.COMPOSED, ResolutionStep.HOST)
_SHOWN_FINDINGS = 5
"""Number of failures shown in full without --verbose."""
_FAMILIES_LEGEND = (
    "pairs of op and dtype, by how they run on contiguous tensors; worst error in ulps of the result, against float64"
)
_OPS_LEGEND = (
    "V view of the input, N native kernel, C core methods of the contract, D decomposed into other ops, "
    "H on the host, - not supported, ! wrong; for contiguous tensors; several letters: depends on the call"
)


def print_certificate(console: Console, certificate: Certificate, *, verbose: bool) -> None:
    """Print a certificate; with `verbose`, every op and every failure."""
    _heading(console, certificate)
    console.print()
    console.print(ops_table(certificate) if verbose else families_table(certificate))
    console.print(Text(_OPS_LEGEND if verbose else _FAMILIES_LEGEND, style="dim"))
    console.print()
    _limits(console, certificate)
    _findings(console, certificate, verbose=verbose)
    _quarantine(console, certificate)
    _verdict(console, certificate)


def families_table(certificate: Certificate) -> Table:
    """Return one row per family: the number of (op, dtype) pairs per resolution step, and the largest error of any op."""
    out = _table("family", "ops", *(s.value for s in _COUNTED_STEPS), *_FLOATS.values(), "wrong")
    for family, ops in _families(certificate.results).items():
        steps: Counter[ResolutionStep] = Counter()
        worst: dict[str, float] = {}
        wrong = 0
        for row in ops.values():
            for dtype, result in row.items():
                wrong += result.failed
                if result.how:
                    steps[_main(result.how)] += 1
                if result.worst_ulp is not None:
                    worst[dtype] = max(worst.get(dtype, 0.0), result.worst_ulp)
        # A view is free, so it counts as native.
        steps[ResolutionStep.NATIVE] += steps.pop(ResolutionStep.VIEW, 0)
        counts = (str(steps[s]) if steps[s] else "" for s in _COUNTED_STEPS)
        errors = (_ulp(worst.get(d)) for d in _FLOATS)
        out.add_row(family, str(len(ops)), *counts, *errors, Text(str(wrong) if wrong else "", style="bold red"))
    return out


def ops_table(certificate: Certificate) -> Table:
    """Return one row per op: its resolution in each dtype, and its largest error where results are rounded."""
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
            # Checks without a dtype, such as checks of errors, are shown only if they fail.
            no_dtype = _cell({ANY: only}, op, storage) if only is not None and (only.how or only.failed) else Text()
            out.add_row("  " + op, *floats, *rest, no_dtype)
    return out


def _table(*titles: str) -> Table:
    out = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for k, title in enumerate(titles):
        out.add_column(title, no_wrap=True, justify="right" if k and titles[1] == "ops" else "left")
    return out


def _families(results: Mapping[str, Mapping[str, OpResult]]) -> dict[str, dict[str, Mapping[str, OpResult]]]:
    """Return the results by family, in the order of declaration. Ops unknown to this version come last."""
    out: dict[str, dict[str, Mapping[str, OpResult]]] = {}
    for op in (*(o.name for o in OPS), *(o for o in results if o not in OPS)):
        if op in results:
            out.setdefault(OPS[op].family if op in OPS else "unknown", {})[op] = results[op]
    return out


def _main(how: Mapping[ResolutionStep, int]) -> ResolutionStep:
    """Return the step that most calls took."""
    return max(how, key=lambda s: how[s])


def _cell(row: Mapping[str, OpResult | None], op: str, storage: frozenset[str]) -> Text:
    """Return the letters of the op's resolution steps in these dtypes, and the largest error."""
    results = [r for r in row.values() if r is not None]
    declared = {d.name for d in OPS[op].tests.dtypes} if op in OPS else set()
    unsupported = [d for d in row if d in declared and (d not in storage or row[d] is None)]
    text = step_letters(step for r in results for step in r.how) + ("-" if unsupported else "")
    rounded = (
        r.worst_ulp for dtype, r in row.items() if r is not None and dtype in _FLOATS and r.worst_ulp is not None
    )
    worst = max(rounded, default=None)
    out = Text(f"{text} {_ulp(worst)}".rstrip())
    if any(r.failed for r in results):
        out = Text(f"{out}!", style="bold red")
    elif any(ResolutionStep.HOST in r.how for r in results):
        out.stylize("yellow")
    return out


def _ulp(value: float | None) -> str:
    """Format an error in ulps, in at most five characters; empty if none was measured."""
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
    pattern = "" if certificate.whole else f", only {scope['only']}"
    console.print(
        f"verified on {certificate.day} with polyhal {identity.polyhal}, backend from {origin}, Python "
        f"{certificate.python}; scope {extent}{pattern}, {certificate.seconds:.0f} s",
        markup=False,
    )


def _limits(console: Console, certificate: Certificate) -> None:
    limits = certificate.limits
    figures = {
        "memory": memory(limits.get("memory", 0)),
        "largest allocation": memory(limits.get("max_allocation", 0)),
    }
    unknown = {"unknown", "0", "0 KiB"}
    limits_text = ", ".join(f"{name} {value}" for name, value in figures.items() if value not in unknown)
    console.print(f"limits: {limits_text or 'none known'}", markup=False)
    if features := ", ".join(f"{name} {value}" for name, value in certificate.info.get("features", {}).items()):
        console.print(f"features: {features}", markup=False)
    console.print(f"dtypes: stores {_dtypes(certificate.storage)}, computes in {_dtypes(certificate.compute)}")


def _dtypes(supported: Iterable[str]) -> str:
    supported = set(supported)
    missing = [d.name for d in dtypes.ALL if d.name not in supported]
    return f"all but {', '.join(missing)}" if missing else "all"


def _findings(console: Console, certificate: Certificate, *, verbose: bool) -> None:
    wrong = [f for f in certificate.findings if not f.right]
    fixed = [f for f in certificate.findings if f.right]
    if not verbose:  # omit consequences of other failures
        fixed = [f for f in fixed if f.now.startswith("quarantined")]
    for title, style, findings in (("wrong", "bold red", wrong), ("fixed", "bold yellow", fixed)):
        shown = findings if verbose else findings[:_SHOWN_FINDINGS]
        for finding in shown:
            console.print()
            _finding(console, finding, title, style)
        if len(shown) < len(findings):
            console.print(f"\n{len(findings) - len(shown)} more are {title}; --verbose shows them", style=style)


def _finding(console: Console, finding: Finding, title: str, style: str) -> None:
    console.print(f"{title}: {finding.case}", style=style, markup=False)
    rows = {
        "call": finding.call,
        "problem": finding.problem,
        "got": f"{finding.got} at {finding.place}" if finding.place else "",
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
    console.print("\nin quarantine until the driver or Polyhal changes", style="bold")
    for entry in certificate.quarantined:
        console.print(Padding(Text(f"{entry.kernel}: {entry.failure}"), (0, 0, 0, 2)))


def _verdict(console: Console, certificate: Certificate) -> None:
    checked = certificate.passed + certificate.failed
    counts = {"unsupported": certificate.unsupported, "expected to fail": certificate.expected_failures}
    others = ", ".join(f"{n} {title}" for title, n in counts.items() if n)
    others = f" ({others})" if others else ""
    console.print()
    if certificate.correct and not certificate.quarantined:
        console.print(f"correct: all {checked} checks pass{others}", style="bold green")
    elif certificate.correct:
        count = len(certificate.quarantined)
        kernels = f"{count} kernel is" if count == 1 else f"{count} kernels are"
        console.print(f"correct now: all {checked} checks pass, {kernels} in quarantine{others}", style="bold yellow")
    else:
        lost = "" if certificate.complete else "; the device was lost before the end of the run"
        console.print(f"WRONG: {certificate.failed} of {checked} checks fail{others}{lost}", style="bold red")
