"""Inputs of a graph that are probably equal in all runs: parameters and statistics of a model.

OpenVINO folds constants, and packs constant weights for the processor once. Graphs do not say which inputs are constant, so
programs are compiled with those found here, and compare them before each run.
"""

from __future__ import annotations

from polyhal.hal.layout import Spec
from polyhal.hal.protocol import GraphProgram, GraphValue
from polyhal_openvino.functions import ELEMENTWISE, MOVEMENT

_DATA = {"conv2d": (0,), "linear": (0,), "matmul": (0,), "embedding": (1,), "layer_norm": (0,)}
"""Operands that are data, not weights, of the ops that have both. All operands of other ops are data."""


def weights(graph: GraphProgram) -> frozenset[int]:
    """Return the positions of the inputs that reach no operand that is data, unless with data.

    Values that elementwise ops and views compute from inputs may be weights as these: the scale of a batch norm.
    """
    donated = {position for position in graph.donated if position is not None}
    sources: dict[GraphValue, frozenset[int]] = {}
    """Positions of the inputs of which a value may be a weight; values that are data have none."""
    for position, value in enumerate(graph.inputs):
        sources[value] = frozenset({position} if isinstance(value.spec, Spec) and position not in donated else ())
    found = frozenset().union(*sources.values())
    for node in graph.nodes:
        operands = [x for x in node.operands if isinstance(x, GraphValue) and isinstance(x.spec, Spec)]
        result: frozenset[int] = frozenset()
        if node.op in ELEMENTWISE or node.op in MOVEMENT:
            if all(sources[x] for x in operands):
                result = frozenset().union(*(sources[x] for x in operands))
        else:
            for position in _DATA.get(node.op, range(len(node.operands))):
                value = node.operands[position]
                if isinstance(value, GraphValue):
                    found -= sources[value]
        sources.update(dict.fromkeys(node.results, result))
    return found.difference(*(sources[x] for x in graph.outputs))
