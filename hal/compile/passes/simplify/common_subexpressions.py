"""Common-subexpression elimination: equal ops on equal operands are computed once."""

from __future__ import annotations

from typing import Any

from polyhal.hal.compile.ir.graph import Graph, Operand, Value, operand_key
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.ops.traits import Trait


def merge_common_subexpressions(graph: Graph) -> Graph:
    """Merge nodes of one op with equal operands, parameters and settings. Keeps nodes that write in place or write nothing."""
    rewriter = GraphRewriter(graph)
    seen: dict[Any, list[Operand]] = {}
    for node in graph.nodes:
        operands = tuple([operand_key(x) for x in rewriter.operands(node)])
        key = (node.op, operands, node.params, node.origin and node.origin.merge_key)
        is_own = bool(node.replaces) or Trait.UNDEFINED in node.op.traits
        first = None if is_own else seen.get(key)
        if first is not None:
            for v, same in zip(node.outputs, first, strict=True):
                rewriter.replace_all_uses(v, same)
            continue
        rewriter.keep(node)
        if not is_own:
            seen[key] = [rewriter.operand(Value(v)) for v in node.outputs]
    return rewriter.finish()
