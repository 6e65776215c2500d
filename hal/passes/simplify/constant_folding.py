"""What does not change from run to run is computed once, when the graph is optimised, and held from then on.

Single numbers go to the elementwise ops that read them as numbers, so that they take no memory and no load.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dispatch
from polyhal.hal.capture.result import CapturedConstant
from polyhal.hal.errors import PolyhalError
from polyhal.hal.ir.graph import Graph, Node, Operand
from polyhal.hal.ir.rewriter import Rewriting
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.opdef import OPS, Value
from polyhal.hal.ops.pointwise.elementwise import OPERANDS, operand_dtype
from polyhal.hal.settings.state import settings

_MOST_BYTES = 1 << 22
"""Of one constant: it is held as long as the step exists, where a value that is computed anew shares its memory."""


def fold_constants(graph: Graph) -> Graph:
    """Replace values that depend on no input by constants or numbers. Must not be called while a step is captured."""
    constants = _Constants(graph)
    wanted = constants.wanted()
    rewriting = Rewriting(graph, [constants.held(v) for v in wanted])
    for place, v in enumerate(wanted):
        rewriting.equate(v, Value(graph.inputs + place))
    for node in graph.nodes:
        if not constants.covers(node):
            numbers = constants.numbers(node)
            if numbers is None:
                rewriting.keep(node)
            else:
                inputs = [rewriting.operand(x) for x in numbers]
                (slot,) = rewriting.add(node.op, inputs, node.params, node.origin)
                rewriting.equate(node.outputs[0], slot)
    return rewriting.finish()


class _Constants:
    """The values of a graph that are known beforehand."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._makers: dict[int, Node] = {}
        """Of values that are known but not computed yet: that is done when someone asks."""
        self._known: dict[int, Any] = {}
        """Those that are computed already, as arrays."""
        self._sources = {v: n for n in graph.nodes for v in n.outputs}
        self._results = {*graph.outputs, *graph.updates.values()}
        self._numbers: dict[int, bool | int | float | None] = {}
        first = graph.inputs - len(graph.constants)
        for i, held in enumerate(graph.constants, first):
            self._known[i] = dispatch.Array(held.device, held.buffer, held.ref)
        for node in graph.nodes:
            if self._is_constant(node):
                self._makers.update(dict.fromkeys(node.outputs, node))

    def covers(self, node: Node) -> bool:
        """Whether the results of a node are known."""
        return node.outputs[0] in self._makers

    def wanted(self) -> list[int]:
        """The known values that are read as tensors by something that is not known, in order."""
        found = {v for v in self._results if v in self._makers}
        for node in self._graph.nodes:
            if not self.covers(node):
                inputs = self.numbers(node) or node.inputs
                found |= {x.index for x in inputs if isinstance(x, Value) and x.index in self._makers}
        return sorted(found)

    def numbers(self, node: Node) -> tuple[Operand, ...] | None:
        """The operands of an elementwise op with numbers where they do the same; None if there are none."""
        if node.op.name not in OPERANDS or node.replaces:
            return None
        inputs: tuple[Operand, ...] = node.inputs
        for place, x in enumerate(node.inputs):
            number = self._number(x) if isinstance(x, Value) and node.op.inputs[place] != "cond" else None
            if number is not None:
                changed = (*inputs[:place], number, *inputs[place + 1 :])
                inputs = changed if self._same(node, changed) else inputs
        return None if inputs == node.inputs else inputs

    def held(self, v: int) -> CapturedConstant:
        """A known value in the memory of its device."""
        array, spec = self._value(v), self._graph.specs[v]
        assert isinstance(spec, Spec)
        return CapturedConstant(array.buffer, Ref(array.ref.handle, spec, array.ref.offset), array.device)

    # --- inner workings ---------------------------------------------------------------------------------------------

    def _is_constant(self, node: Node) -> bool:
        if node.replaces or node.origin is None or node.op.family in ("random", "transfer"):
            return False
        if node.op is OPS["full"] and not self._results.isdisjoint(node.outputs):
            return False  # filling the result's memory is cheaper than copying a constant there
        size = sum(s.nbytes for s in (self._graph.specs[v] for v in node.outputs) if isinstance(s, Spec))
        known = all(not isinstance(x, Value) or x.index in self._makers or x.index in self._known for x in node.inputs)
        return known and size <= _MOST_BYTES

    def _value(self, v: int) -> Any:
        """The array of a known value, computed as an eager call computes it."""
        if v not in self._known:
            node = self._makers[v]
            assert node.origin is not None
            inputs = tuple(self._value(x.index) if isinstance(x, Value) else x for x in node.inputs)
            with settings.restored(node.origin.settings):
                made = dispatch.EAGER.apply(node.op, inputs, node.params, node.origin.device)
            self._known.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True))
        return self._known[v]

    def _number(self, x: Value) -> bool | int | float | None:
        """The number that all elements of a value are, where that is known."""
        spec = self._graph.specs[x.index]
        if not isinstance(spec, Spec) or not spec.size:
            return None
        if x.index not in self._numbers:
            self._numbers[x.index] = self._found_number(x.index, spec)
        return self._numbers[x.index]

    def _found_number(self, v: int, spec: Spec) -> bool | int | float | None:
        source = self._sources.get(v)
        while source is not None and self._graph.view_offset(source) is not None:
            before = source.inputs[0]
            assert isinstance(before, Value)
            source = self._sources.get(before.index)
        if source is not None and source.op is OPS["full"]:
            return _as_python(np.asarray(source.op.bind(source.params)["value"]).astype(spec.dtype.numpy), spec)
        if spec.size > 1 or (v not in self._makers and v not in self._known):
            return None
        array = self._value(v)
        return _as_python(array.device.download(array.ref).reshape(-1)[0], spec)

    def _same(self, node: Node, inputs: tuple[Operand, ...]) -> bool:
        """Whether an op computes in the same dtype and shape on other operands."""
        specs = tuple(self._graph.spec_of(x) for x in inputs)
        if not any(isinstance(s, Spec) for s in specs):
            return False
        old = tuple(self._graph.spec_of(x) for x in node.inputs)
        (out,) = node.outputs
        try:
            ((dtype, shape),) = dispatch.infer(node.op, specs, node.op.bind(node.params))
            same = node.op.name == "cast" or operand_dtype(node.op.name, specs) is operand_dtype(node.op.name, old)
        except PolyhalError:
            return False
        return same and self._graph.specs[out][:2] == (dtype, shape)  # type: ignore[index]


def _as_python(number: Any, spec: Spec) -> bool | int | float | None:
    """An element as a Python number; None for integers that no launch takes."""
    if spec.dtype.kind == "bool":
        return bool(number)
    if spec.dtype.kind == "float":
        return float(number)
    found = int(number)
    return found if -(1 << 63) <= found < 1 << 63 else None
