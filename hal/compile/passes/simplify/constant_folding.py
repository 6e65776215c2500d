"""Constant folding: computes once, when the graph is optimised, values that are equal in every run.

Constants of a single number become literals of the pointwise ops that read them, which costs no memory and no load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.compile.ir.graph import CapturedConstant, Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import PolyhalError
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.pointwise.promotion import operand_dtype
from polyhal.hal.ops.traits import Trait

if TYPE_CHECKING:
    from polyhal.hal.ops.tensor_like import Array

_TRANSFER = OPS["transfer"]
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
    """The values of a graph that are known before it runs."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._foldable: set[int] = set()
        """Outputs of nodes whose operands are all known. They are computed when somebody asks."""
        self._arrays: dict[int, Any] = {}
        """The values that are computed already."""
        self._literals: dict[int, bool | int | float | None] = {}
        first = graph.inputs - len(graph.constants)
        for i, constant in enumerate(graph.constants, first):
            self._arrays[i] = dispatch.frontend.wrap(constant.device, constant.buffer, constant.ref)
        for node in graph.nodes:
            if self._is_foldable(node):
                self._foldable.update(node.outputs)

    def covers(self, node: Node) -> bool:
        """Return whether the results of a node are known."""
        return node.outputs[0] in self._foldable

    def values_to_hold(self) -> list[int]:
        """The known values that other nodes read as tensors or that the graph returns, in order."""
        held = set(self._graph.live_outs & self._foldable)
        for node in self._graph.nodes:
            if not self.covers(node):
                inputs = self.with_literals(node) or node.inputs
                held |= {x.index for x in inputs if isinstance(x, Value) and x.index in self._foldable}
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
        array = self._array(v)
        return CapturedConstant(
            array.buffer, Ref(array.ref.handle, self._graph.tensor(v), array.ref.offset), array.device
        )

    # --- inner workings ---------------------------------------------------------------------------------------------

    def _is_foldable(self, node: Node) -> bool:
        if node.replaces or node.origin is None:
            return False
        if Trait.UNFOLDABLE & node.op.traits and node.op is not _TRANSFER:
            return False
        if node.op is OPS["full"] and not self._graph.live_outs.isdisjoint(node.outputs):
            return False  # Filling the result's memory is cheaper than copying a constant there.
        if any(v not in self._foldable and v not in self._arrays for v in node.reads):
            return False
        return sum(spec.nbytes for spec in self._graph.output_specs(node)) <= _MAX_BYTES

    def _array(self, v: int) -> Any:
        """Return the array of a known value."""
        for node in self._not_computed(v):
            self._compute(node)
        return self._arrays[v]

    def _not_computed(self, v: int) -> list[Node]:
        """Return the nodes that a known value depends on and that have not run, in the graph's order.

        Iterative, because chains of constants may exceed Python's recursion limit.
        """
        found: set[int] = set()
        pending = [v]
        while pending:
            x = pending.pop()
            k = self._graph.producer_index(x)
            if x not in self._arrays and k not in found:
                found.add(k)
                pending.extend(self._graph.nodes[k].reads)
        return [self._graph.nodes[k] for k in sorted(found)]

    def _compute(self, node: Node) -> None:
        """Run a node whose operands are computed, as an eager call does."""
        inputs: tuple[Any, ...] = tuple(self._arrays[x.index] if isinstance(x, Value) else x for x in node.inputs)
        if node.op is _TRANSFER:
            self._arrays[node.outputs[0]] = dispatch.EAGER.transfer(inputs[0], node.device)
            return
        with settings.restored(node.place.settings):
            results = dispatch.EAGER.apply(node.op, inputs, node.params, node.device)
        self._arrays.update(zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=True))

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
        if spec.size > 1 or (v not in self._foldable and v not in self._arrays):
            return None
        array = self._array(v)
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
