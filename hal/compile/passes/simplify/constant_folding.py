"""Constant folding: computes once, when the graph is optimised, values that are equal in every run.

Constants of a single number become literals of the pointwise ops that read them, which costs no memory and no load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyhal.hal.compile.ir.graph import CapturedConstant, Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.compile.passes.simplify.known_values import KnownValues
from polyhal.hal.core import dispatch
from polyhal.hal.errors import PolyhalError
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.promotion import operand_dtype
from polyhal.hal.ops.traits import Trait

if TYPE_CHECKING:
    from polyhal.hal.ops.tensor_like import Array

_MAX_BYTES = 1 << 22
"""Of one constant. It is held as long as the step exists, whereas a computed value shares its memory with others."""


def fold_constants(graph: Graph) -> Graph:
    """Replace values that depend on no input by constants or literals. Must not be called while a step is captured."""
    folding = _Folding(graph)
    held = folding.values_to_hold()
    rewriter = GraphRewriter(graph, [folding.constant(v) for v in held])
    for position, v in enumerate(held, graph.inputs):
        rewriter.replace_all_uses(v, Value(position))
    for node in graph.nodes:
        if folding.covers(node):
            continue
        inputs = folding.with_literals(node)
        if inputs is None:
            rewriter.keep(node)
        else:
            rewriter.replace(node, node.op, [rewriter.operand(x) for x in inputs], node.params)
    return rewriter.finish()


class _Folding:
    """The values of a graph that are known before it runs, and the operands that they become."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known = KnownValues(graph, _MAX_BYTES)
        self._literals: dict[int, bool | int | float | None] = {}

    def covers(self, node: Node) -> bool:
        """Return whether the results of a node are known."""
        return node.outputs[0] in self._known.results

    def values_to_hold(self) -> list[int]:
        """The known values that other nodes read as tensors or that the graph returns, in order."""
        held = set(self._graph.live_outs & self._known.results)
        for node in self._graph.nodes:
            if not self.covers(node):
                inputs = self.with_literals(node) or node.inputs
                held |= {x.index for x in inputs if isinstance(x, Value) and x.index in self._known.results}
        return sorted(held)

    def with_literals(self, node: Node) -> tuple[Operand, ...] | None:
        """The operands of a pointwise op with literals where these do the same; None if there are none."""
        if Trait.POINTWISE not in node.op.traits or node.replaces:
            return None
        inputs: tuple[Operand, ...] = node.inputs
        for position, x in enumerate(node.inputs):
            number = (
                self._literal(x.index) if isinstance(x, Value) and node.op.schema.inputs[position] != "cond" else None
            )
            if number is not None:
                changed = (*inputs[:position], number, *inputs[position + 1 :])
                inputs = changed if self._same_result(node, changed) else inputs
        return None if inputs == node.inputs else inputs

    def constant(self, v: int) -> CapturedConstant:
        """A known value in the memory of its device."""
        array = self._known.array(v)
        return CapturedConstant(
            array.buffer, Ref(array.ref.handle, self._graph.tensor(v), array.ref.offset), array.device
        )

    # --- inner workings ---------------------------------------------------------------------------------------------

    def _literal(self, v: int) -> bool | int | float | None:
        """The number that all elements of a value are, where that is known."""
        spec = self._graph.specs[v]
        if not isinstance(spec, Spec) or not spec.size:
            return None
        if v not in self._literals:
            self._literals[v] = self._single_number(v, spec)
        return self._literals[v]

    def _single_number(self, v: int, spec: Spec) -> bool | int | float | None:
        node = self._graph.producer(self._graph.root(v))
        if node is not None and node.op is OPS["full"]:
            return _as_python(np.asarray(node.bound["value"]).astype(spec.dtype.numpy), spec)
        if spec.size > 1 or v not in self._known:
            return None
        array = self._known.array(v)
        return _as_python(array.device.download(array.ref).reshape(-1)[0], spec)

    def _same_result(self, node: Node, inputs: tuple[Operand, ...]) -> bool:
        """Return whether a pointwise op computes in the same dtype and shape on other operands."""
        specs = tuple(self._graph.spec_of(x) for x in inputs)
        if not any(isinstance(s, Spec) for s in specs):
            return False
        old = tuple(self._graph.spec_of(x) for x in node.inputs)
        (out,) = self._graph.output_specs(node)
        try:
            ((dtype, shape),) = dispatch.infer(node.op, specs, node.bound, node.device.stand_ins)
            same = operand_dtype(node.op, specs) is operand_dtype(node.op, old)
        except PolyhalError:
            return False
        return same and out[:2] == (dtype, shape)


def _as_python(number: Array, spec: Spec) -> bool | int | float | None:
    """An element as a Python number; None for integers that no launch takes."""
    if spec.dtype.kind == "bool":
        return bool(number)
    if spec.dtype.kind == "float":
        return float(number)
    found = int(number)
    return found if -(1 << 63) <= found < 1 << 63 else None
