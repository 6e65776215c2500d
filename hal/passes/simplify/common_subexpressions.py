"""Equal nodes on equal values are computed once."""

from __future__ import annotations

from typing import Any

from polyhal.hal.ir.graph import Graph
from polyhal.hal.ir.rewriter import Rewriting
from polyhal.hal.ops.opdef import Value


def merge_common_subexpressions(graph: Graph) -> Graph:
    """Merge nodes of the same op, operands, parameters and settings. Nodes that change memory in place stay."""
    rewriting = Rewriting(graph)
    seen: dict[Any, tuple[Value, ...]] = {}
    for node in graph.nodes:
        operands = rewriting.operands(node)
        key = (node.op, tuple(_identity(x) for x in operands), node.params, node.origin and node.origin.alike)
        found = None if node.replaces else seen.get(key)
        if found is None:
            rewriting.keep(node)
            if not node.replaces:
                seen[key] = tuple(rewriting.operand(Value(v)) for v in node.outputs)  # type: ignore[misc]
        else:
            for v, slot in zip(node.outputs, found, strict=True):
                rewriting.equate(v, slot)
    return rewriting.finish()


def _identity(x: Any) -> Any:
    """An operand with its type and sign: 1, 1.0 and True are equal in Python, and so are 0.0 and -0.0."""
    return x if isinstance(x, Value) else (type(x), repr(x))
