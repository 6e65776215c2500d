"""Differences between two recordings of calls with equal guards: reasons for which a replay would be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from polyhal.hal.compile.capture.result import UNNAMED, CapturedGraph, same_source
from polyhal.hal.compile.ir.graph import CapturedConstant
from polyhal.hal.core.dispatch.operands import NUMBERS


class Difference(NamedTuple):
    """Reason for which calls run op by op: a message, the expected behaviour and the remedy."""

    problem: str
    expected: str = ""
    fix: str = ""


RETURNS_NUMBERS = Difference(
    "the step returns other numbers at each call",
    expected="tensors, and numbers that stay the same",
    fix="return a tensor, or count outside of the step",
)


def difference(before: CapturedGraph, now: CapturedGraph, number_fix: str) -> Difference | None:
    """Return why replays of `before` would not repeat the call recorded in `now`; None if they have other ops.

    `number_fix` is the remedy for a number that Python computes.
    """
    return _changed_memory(before, now) or _changed_number(before, now, number_fix)


def _changed_memory(before: CapturedGraph, now: CapturedGraph) -> Difference | None:
    """Return the reason if a step reads other memory at each call: state that it replaces, or data that is not passed to it."""
    outputs = {id(t.buffer) for t, _ in before.live_outs}
    own = [i for i, s in enumerate(now.sources) if isinstance(s, CapturedConstant) and id(s.buffer) in outputs]
    rebound = own or _rebound_constants(before, now)
    if not rebound:
        return None
    first = rebound[0]
    name, line, source = now.graph.names.get(first, UNNAMED), now.first_uses.get(first, ""), now.sources[first]
    tensor = f"{name + ', ' if not name.startswith(UNNAMED) else ''}a {now.graph.specs[first]}, first used at {line}"
    if own:
        problem = f"the step reads what its last call made ({tensor}): state that is replaced is lost on replay"
    elif isinstance(source, CapturedConstant) and source.frozen:
        problem = f"the step makes a constant of other values at each call ({tensor})"
    else:
        problem = f"the step reads another tensor at each call, which is not passed to it ({tensor})"
    return Difference(
        problem,
        expected="state that is changed in place, and data among the arguments",
        fix="write x.copy_(...) or x.add_(...) instead of x = ..., or pass the tensor",
    )


def _rebound_constants(before: CapturedGraph, now: CapturedGraph) -> list[int]:
    """Return the captured constants that are in other memory in a recording of the same ops; none if the ops differ."""
    mine, theirs = before.graph, now.graph
    if mine.specs != theirs.specs or mine.nodes != theirs.nodes or len(before.sources) != len(now.sources):
        return []
    pairs = enumerate(zip(before.sources, now.sources, strict=True))
    return [
        i
        for i, (a, b) in pairs
        if isinstance(a, CapturedConstant) and isinstance(b, CapturedConstant) and not same_source(a, b)
    ]


def _changed_number(before: CapturedGraph, now: CapturedGraph, fix: str) -> Difference | None:
    """Return the reason if two recordings differ only in numbers that Python computes."""
    mine, theirs = before.graph, now.graph
    if mine.specs != theirs.specs or len(mine.nodes) != len(theirs.nodes) or mine.outputs != theirs.outputs:
        return None
    changes = []
    for a, b in zip(mine.nodes, theirs.nodes, strict=True):
        if a.op is not b.op or a.outputs != b.outputs:
            return None
        pairs = list(_differing_leaves((a.inputs, a.params), (b.inputs, b.params)))
        if not all(type(x) in NUMBERS and type(y) in NUMBERS for x, y in pairs):
            return None
        changes += [(a, x, y) for x, y in pairs]
    if not changes:
        return None
    node, old, new = changes[0]
    module = node.origin.module if node.origin is not None else ""
    return Difference(
        f"Python computes another number at each call ({old!r}, then {new!r}, in {node.op.name}"
        f"{' of ' + module if module else ''}), which a replay would not see",
        expected="numbers that stay the same, or that are known to change",
        fix=fix,
    )


def _differing_leaves(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    """Return the leaves of two trees of tuples that differ."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        for x, y in zip(a, b, strict=True):
            yield from _differing_leaves(x, y)
    elif type(a) is not type(b) or a != b:
        yield a, b
