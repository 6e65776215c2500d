"""Explanation of a captured step: the changes of each pass to the graph, and the kernel of each op with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.ir.text import operand_text, spec_text
from polyhal.hal.compile.passes.pipeline import PASSES, apply_pass
from polyhal.hal.compile.planning.resolution import Resolution

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.executable import Executable
    from polyhal.hal.device import Device


def explain(executable: Executable) -> str:
    """Return a text with the changes of each pass, then one entry per op that runs: its kernel and the reason for it."""
    plan, recorded, final = executable.plan, executable.captured.graph, executable.graph
    calls = [c for c in executable.calls if c is not None]
    devices = ", ".join(sorted({f"{n.origin.device} ({n.origin.device.info.name})" for n in final.nodes if n.origin}))
    in_place = sum(c is None and not final.is_view(n) for n, c in zip(final.nodes, executable.calls, strict=True))
    views = len(final.nodes) - len(calls) - in_place
    others = f"{views} are views" + (f", {in_place} concatenations are computed in place" if in_place else "")
    lines = [
        f"{len(recorded.nodes)} ops were recorded; {len(calls)} run on {devices or 'no device'}, and {others}",
        "",
        "passes",
        *(f"  {line}" for line in passes(recorded, final, plan.declined)),
        *(f"  no programs on {device}: {reason}" for device, reason in plan.declined.items()),
        "",
        "ops, in execution order",
    ]
    shown: set[str] = set()
    for number, call in enumerate(calls, 1):
        lines += _call(executable.graph, number, call.node, call.resolution, shown)
    return "\n".join(lines)


def passes(graph: Graph, final: Graph, declined: Collection[Device] = ()) -> Iterator[str]:
    """Yield the changes of each pass, found by running it again on `graph`; then the changes of scheduling to `final`."""
    for step in PASSES:
        after = apply_pass(step, graph, declined)
        changes = _changes(graph, after)
        if changes:
            yield f"{step.__name__}: {changes}"
        graph = after
    changes = _changes(graph, final)
    if changes:
        yield f"scheduling, to save memory: {changes}"


def _changes(before: Graph, after: Graph) -> str:
    """Count the ops that were removed and added, by name; empty if there are none."""
    old, new = (Counter(n.op.name for n in g.nodes) for g in (before, after))
    removed, added = old - new, new - old
    if not added:
        return f"{_counted(removed)} removed" if removed else ""
    return f"{_counted(removed)} replaced by {_counted(added)}" if removed else f"{_counted(added)} added"


def _counted(ops: Counter[str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(ops.items(), key=lambda pair: (-pair[1], pair[0])))


def _call(graph: Graph, number: int, node: Node, resolution: Resolution, shown: set[str]) -> Iterator[str]:
    """Yield the lines of one op; reasons in `shown` are not repeated."""
    inputs = ", ".join(f"{operand_text(x)}" for x in node.inputs)
    specs = ", ".join(spec_text(graph.specs[v]) for v in node.outputs)
    outputs = ", ".join(f"%{v}" for v in node.outputs)
    module = f"  # {node.origin.module}" if node.origin is not None and node.origin.module else ""
    yield f"{number:>4}  {outputs} = {node.op.name}({inputs}): {specs}{module}"
    if parts := parts_of(node):
        yield f"        fuses {', '.join(parts)}"
    first, *rest = resolution.lines()
    yield f"        {first.partition('): ')[2]}"
    for line in rest:
        reason = line.strip()
        if reason not in shown:
            shown.add(reason)
            yield f"        {line.removeprefix('  ')}"


def parts_of(node: Node) -> list[str]:
    """Return the names of the ops that a fused op computes, in order; none for other ops."""
    params: dict[str, Any] = node.op.bind(node.params)
    if "steps" not in params or not all(isinstance(s, tuple) and s and isinstance(s[0], str) for s in params["steps"]):
        return []
    names = [s[0] for s in params["steps"]]
    reduction = params.get("reduction")
    return [*names, reduction[0]] if reduction else names
