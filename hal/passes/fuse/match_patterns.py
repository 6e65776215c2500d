"""Formulas written out in plain ops become the op that has a kernel: softmax, norms, gelu.

What a formula makes on its way must be read by nothing else: where a backward pass needs it, it is left alone. Results agree
within the tolerance that the op declares. A formula that overflows where the op does not is not taken for it.
"""

from __future__ import annotations

from polyhal.hal.ir.graph import Graph
from polyhal.hal.ir.rewriter import GraphRewriter, can_fuse
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.passes.fuse.patterns import FORMULAS
from polyhal.hal.passes.fuse.patterns.reader import Match, Reader


def match_patterns(graph: Graph) -> Graph:
    """Replace formulas, the largest first, on devices that have kernels for them."""
    reader = Reader(graph)
    found: dict[int, Match] = {}
    gone: set[int] = set()
    trial = GraphRewriter.probe(graph)
    for k in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[k]
        if k in gone or not can_fuse(node):
            continue
        assert node.origin is not None
        for formula in FORMULAS.get(node.op.name, ()):
            match = formula(reader, node)
            if match is None:
                continue
            inside = reader.between(node, match)
            op = OPS[match.op]
            if inside is None or trial.infer(op, match.inputs, match.params)[0] != graph.specs[node.outputs[0]]:
                continue
            if trial.has_kernel(op, match.inputs, match.params, node.origin):
                found[k] = match
                gone |= inside
                break
    rewriter = GraphRewriter(graph)
    for k, node in enumerate(graph.nodes):
        if k in found:
            inputs = [rewriter.operand(x) for x in found[k].inputs]
            made = rewriter.add(OPS[found[k].op], inputs, found[k].params, node.origin)
            rewriter.replace_all_uses(node.outputs[0], made[0])
        elif k not in gone:
            rewriter.keep(node)
    return rewriter.finish()
