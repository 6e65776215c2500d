"""How a captured step came to run the way it does: what each pass made of the graph, and the kernel of every op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.ir.text import operand_text, spec_text
from polyhal.hal.passes.pipeline import PASSES
from polyhal.hal.planning.resolution import Resolution

if TYPE_CHECKING:
    from polyhal.hal.scheduler.executable import Executable


def explain(executable: Executable) -> str:
    """What was recorded, what the passes left out, joined and took apart, and how each remaining op runs and why."""
    recorded, final = executable.captured.graph, executable.graph
    calls = [c for c in executable.calls if c is not None]
    places = ", ".join(sorted({f"{n.origin.device} ({n.origin.device.info.name})" for n in final.nodes if n.origin}))
    joined = sum(c is None and not final.is_view(n) for n, c in zip(final.nodes, executable.calls, strict=True))
    run, views = len(calls), len(final.nodes) - len(calls) - joined
    others = f"{views} are views" + (f", {joined} concatenations are made in place" if joined else "")
    lines = [
        f"{len(recorded.nodes)} ops were recorded; {run} run on {places or 'no device'}, and {others}",
        "",
        "passes",
        *(f"  {line}" for line in passes(recorded, final)),
        "",
        "ops, in the order in which they run",
    ]
    told: set[str] = set()
    for number, call in enumerate(calls, 1):
        lines += _call(executable.graph, number, call.node, call.resolution, told)
    return "\n".join(lines)


def passes(graph: Graph, final: Graph) -> Iterator[str]:
    """What each pass does to `graph`, by running them again; then what became of that in `final`, which runs."""
    for step in PASSES:
        after = step(graph)
        changes = _changes(graph, after)
        if changes:
            yield f"{step.__name__}: {changes}"
        graph = after
    changes = _changes(graph, final)
    if changes:
        yield f"to save memory: {changes}"


def _changes(before: Graph, after: Graph) -> str:
    """How many ops of which kind went and came."""
    old, new = (Counter(n.op.name for n in g.nodes) for g in (before, after))
    gone, made = old - new, new - old
    if not made:
        return f"{_counted(gone)} left out" if gone else ""
    return f"{_counted(gone)} became {_counted(made)}" if gone else f"{_counted(made)} added"


def _counted(ops: Counter[str]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(ops.items(), key=lambda pair: (-pair[1], pair[0])))


def _call(graph: Graph, number: int, node: Node, resolution: Resolution, told: set[str]) -> Iterator[str]:
    inputs = ", ".join(f"{operand_text(x)}" for x in node.inputs)
    kinds = ", ".join(spec_text(graph.specs[v]) for v in node.outputs)
    made = ", ".join(f"%{v}" for v in node.outputs)
    module = f"  # {node.origin.module}" if node.origin is not None and node.origin.module else ""
    yield f"{number:>4}  {made} = {node.op.name}({inputs}): {kinds}{module}"
    if parts := parts_of(node):
        yield f"        made of {', '.join(parts)}"
    first, *rest = resolution.lines()
    yield f"        {first.partition('): ')[2]}"
    for line in rest:
        reason = line.strip()
        if reason not in told:
            told.add(reason)
            yield f"        {line.removeprefix('  ')}"


def parts_of(node: Node) -> list[str]:
    """The names of the ops that a fused op is made of, in order; none for other ops."""
    params: dict[str, Any] = node.op.bind(node.params)
    if "steps" not in params or not all(isinstance(s, tuple) and s and isinstance(s[0], str) for s in params["steps"]):
        return []
    names = [s[0] for s in params["steps"]]
    reduction = params.get("reduction")
    return [*names, reduction[0]] if reduction else names
