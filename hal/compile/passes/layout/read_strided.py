"""Lets ops that take any layout read views, instead of copies that only bring them into row-major order.

Caches of keys and values copy their first ones, and programs call `contiguous` for kernels of other devices. Attention
reads the heads of a product's result in place as fast as a copy of them.
"""

from __future__ import annotations

from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.compile.passes.layout.propagate_layouts import takes_any_layout
from polyhal.hal.layout import Spec
from polyhal.hal.ops.traits import Trait

_VECTOR = 16
"""Bytes that kernels load at once."""


def read_strided(graph: Graph) -> Graph:
    """Remove copies that are read by ops of any layout only, if their operand has whole aligned vectors of its last axis."""
    rewriter = GraphRewriter(graph)
    for node in graph.nodes:
        if _is_needless(graph, node):
            rewriter.replace_all_uses(node.outputs[0], rewriter.operand(node.inputs[0]))
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _is_needless(graph: Graph, node: Node) -> bool:
    """Return whether a node copies one operand for ops that could read it where it is."""
    if Trait.JOINS_OPERANDS not in node.op.traits or len(node.inputs) != 1 or node.replaces or graph.is_view(node):
        return False
    (copied,) = node.outputs
    source, spec = graph.spec_of(node.inputs[0]), graph.tensor(copied)
    if not isinstance(source, Spec) or (source.dtype, source.shape) != (spec.dtype, spec.shape):
        return False
    users = graph.users(copied)
    read = bool(users) and not graph.is_live_out(copied)
    return read and _has_vectors(source) and all(takes_any_layout(n) and not n.replaces for n in users)


def _has_vectors(spec: Spec) -> bool:
    """Return whether each row begins at a multiple of the vector's size and has a multiple of it."""
    if not spec.ndim or not spec.aligned or spec.strides[-1] != 1:
        return False
    return all(n * spec.dtype.itemsize % _VECTOR == 0 for n in (*spec.strides[:-1], spec.shape[-1]))
