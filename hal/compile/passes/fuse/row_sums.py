"""Adds rows to the table to which their sum is added, instead of to a table of zeros.

An embedding that shares its weight with the head of a model has two gradients: a product, and rows by number. The rows are
added to the product in place, which saves a table of zeros, a read and a write of both. The order of the sums differs from an
eager step's, so processors, where this saves little, run both ops.
"""

from __future__ import annotations

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OPS

_ADD, _SCATTER, _RESHAPE = OPS["add"], OPS["scatter_rows"], OPS["reshape"]


def fuse_row_sums(graph: Graph) -> Graph:
    """Replace the sum of a table and of scattered rows by `add_rows`, where only the sum reads the scattered rows."""
    found = {k: pair for k, node in enumerate(graph.nodes) if (pair := _table_and_rows(graph, node)) is not None}
    if not found:
        return graph
    rewriter = GraphRewriter(graph)
    for k, node in enumerate(graph.nodes):
        if k not in found:
            rewriter.keep(node)
            continue
        table, scatter = found[k]
        rows, index = (rewriter.operand(x) for x in scatter.inputs)
        width = graph.tensor(scatter.outputs[0]).shape[1]
        (rows,) = rewriter.add(_RESHAPE, [rows], ((-1, width),), scatter.origin)
        (index,) = rewriter.add(_RESHAPE, [index], ((-1,),), scatter.origin)
        operands = (rewriter.operand(table), index, rows)
        specs = graph.output_specs(node)
        (result,) = rewriter.new.add(OPS["add_rows"], operands, (), specs, node.origin, node.replaces)
        rewriter.replace_all_uses(node.outputs[0], Value(result))
    return rewriter.finish()


def _table_and_rows(graph: Graph, node: Node) -> tuple[Operand, Node] | None:
    """Return the table and the scattered rows whose sum a node is, in the dtype in which kernels sum; None for others."""
    if node.op is not _ADD or node.device.type is DeviceType.CPU:
        return None
    if node.replaces not in ((), (0,)) or not can_fuse(node):
        return None
    out = graph.tensor(node.outputs[0])
    for table, rows in (node.inputs,) if node.replaces else (node.inputs, node.inputs[::-1]):
        if not isinstance(table, Value) or not isinstance(rows, Value):
            continue
        scatter = graph.producer(rows.index)
        if scatter is None or scatter.op is not _SCATTER or not scatter.merges_with(node):
            continue
        used_once = graph.use_count(rows.index) == 1
        exact = out.dtype.kind != "float" or accumulator(out.dtype) is out.dtype
        dense = all(isinstance(s := graph.spec_of(x), Spec) and s.is_contiguous for x in scatter.inputs)
        if used_once and exact and dense and graph.specs[table.index] == out:
            return table, scatter
    return None
