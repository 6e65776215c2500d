"""The tool of passes: a new graph that grows while an old one is read.

Graphs are never changed. A pass walks the old graph and, for each node, copies it, or says which operand of the new graph
replaces its results in later nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.ir.graph import CapturedConstant, Graph, Node, NodeOrigin, Operand, Value, infer_results
from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.state import settings
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.protocol import Feature, InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import ParamValues


class GraphRewriter:
    """Builds `new` from `old`. Every value of `old` that is read later must be copied or replaced first."""

    def __init__(self, old: Graph, constants: Sequence[CapturedConstant] = ()) -> None:
        """`constants` become inputs of the new graph, after those of the old one."""
        self.old = old
        self.new = Graph([*old.specs[: old.inputs], *[c.ref.spec for c in constants]])
        self.new.constants = [*old.constants, *constants]
        self.new.frozen = old.frozen
        self.new.names = dict.fromkeys(range(old.inputs, self.new.inputs), "constant")
        self._now: dict[int, Operand] = {i: Value(i) for i in range(old.inputs)}

    @classmethod
    def probe(cls, graph: Graph) -> GraphRewriter:
        """A rewriter to ask for kernels before anything is changed: it has every value of `graph` as an input."""
        return cls(Graph(graph.specs))

    # --- reading ----------------------------------------------------------------------------------------------------

    def operand(self, x: Operand) -> Operand:
        """The operand of the new graph for one of the old graph."""
        return self._now[x.index] if isinstance(x, Value) else x

    def operands(self, node: Node) -> tuple[Operand, ...]:
        """The operands of an old node in the new graph."""
        now = self._now
        return tuple([now[x.index] if isinstance(x, Value) else x for x in node.inputs])

    def producer(self, x: Operand) -> Node | None:
        """The node of the new graph that makes `x`; None for inputs, numbers and absent operands."""
        return self.new.producer(x.index) if isinstance(x, Value) else None

    def tensor(self, x: Operand) -> Spec:
        """The spec of a tensor of the new graph. Raises TypeError for anything else."""
        spec = self.new.spec_of(x)
        if not isinstance(spec, Spec):
            raise TypeError(f"operand {x} is {spec}; expected a tensor")
        return spec

    # --- writing ----------------------------------------------------------------------------------------------------

    def keep(self, node: Node) -> None:
        """Copy an old node."""
        operands, first = self.operands(node), len(self.new.specs)
        specs = [self.old.specs[v] for v in node.outputs]
        if operands != node.inputs or node.outputs != tuple(range(first, first + len(specs))):
            self.keep_with(node, specs)
            return
        # Most passes keep most nodes, numbers included.
        self.new.append(node, specs)
        for v in node.outputs:
            self._now[v] = Value(v)

    def keep_with(self, node: Node, specs: Sequence[InputSpec | None]) -> None:
        """Copy an old node with other layouts of its outputs."""
        outputs = self.new.add(node.op, self.operands(node), node.params, specs, node.origin, node.replaces)
        for v, new in zip(node.outputs, outputs, strict=True):
            self._now[v] = Value(new)

    def add(
        self, op: OpDef, inputs: Sequence[Operand], params: ParamValues, origin: NodeOrigin | None
    ) -> tuple[Value, ...]:
        """Add a new node; its specs follow from the op's rules."""
        bound = op.bind(dispatch.freeze(params))
        stand_ins = None if origin is None else origin.device.stand_ins
        specs, _ = infer_results(op, tuple(self.new.spec_of(x) for x in inputs), bound, stand_ins)
        return tuple(map(Value, self.new.add(op, tuple(inputs), tuple(bound.values()), specs, origin)))

    def replace(self, node: Node, op: OpDef, inputs: Sequence[Operand], params: ParamValues) -> None:
        """Add a new node whose results replace an old one's, output by output."""
        for v, result in zip(node.outputs, self.add(op, inputs, params, node.origin), strict=True):
            self.replace_all_uses(v, result)

    def replace_all_uses(self, value: int, operand: Operand) -> None:
        """Let an operand of the new graph replace an old value in all nodes that follow."""
        self._now[value] = operand

    def inline(self, graph: Graph, inputs: Sequence[Operand], origin: NodeOrigin | None) -> list[Operand]:
        """Add the nodes of another graph, with `inputs` for its inputs. Returns its outputs."""
        now: dict[int, Operand] = dict(enumerate(inputs))
        for node in graph.nodes:
            operands = tuple(now[x.index] if isinstance(x, Value) else x for x in node.inputs)
            outputs = self.new.add(node.op, operands, node.params, [graph.specs[v] for v in node.outputs], origin)
            now.update(zip(node.outputs, map(Value, outputs), strict=True))
        return [now[v] for v in graph.outputs]

    def finish(self, outputs: Sequence[int] | None = None) -> Graph:
        """Return the new graph with the updates of the old one, and with its outputs or the old values `outputs`."""
        self.new.outputs = tuple(self._result(v) for v in (self.old.outputs if outputs is None else outputs))
        self.new.updates = {i: self._result(v) for i, v in self.old.updates.items()}
        self.new.names |= {i: name for i, name in self.old.names.items() if i < self.old.inputs}
        return self.new

    def _result(self, value: int) -> int:
        operand = self._now[value]
        if not isinstance(operand, Value):
            raise TypeError(f"the graph's result %{value} became {operand}; expected a value")
        return operand.index

    # --- asking the device ------------------------------------------------------------------------------------------

    def infer(self, op: OpDef, inputs: Sequence[Operand], params: tuple[Any, ...]) -> list[Spec]:
        """The contiguous results of an op on operands of the new graph. Raises the errors of the op's rules."""
        return self._inferred(op, inputs, op.bind(dispatch.freeze(params)))

    def has_kernel(self, op: OpDef, inputs: Sequence[Operand], params: ParamValues, place: NodeOrigin) -> bool:
        """Return whether the device has a native kernel for an op on operands of the new graph."""
        bound = op.bind(dispatch.freeze(params))
        return self._is_native(op, inputs, self._inferred(op, inputs, bound, place.device.stand_ins), bound, place)

    def can_write(self, node: Node, inputs: Sequence[Operand], outputs: Sequence[Spec]) -> bool:
        """Return whether the device has a native kernel for an old node that writes outputs with the given layouts."""
        return self._is_native(node.op, inputs, outputs, node.bound, node.place)

    def _inferred(
        self,
        op: OpDef,
        inputs: Sequence[Operand],
        bound: dict[str, Any],
        stand_ins: Mapping[DType, DType] | None = None,
    ) -> list[Spec]:
        specs = tuple(self.new.spec_of(x) for x in inputs)
        return [contiguous(dtype, shape) for dtype, shape in dispatch.infer(op, specs, bound, stand_ins or {})]

    def _is_native(
        self, op: OpDef, inputs: Sequence[Operand], outputs: Sequence[Spec], bound: dict[str, Any], place: NodeOrigin
    ) -> bool:
        specs = tuple(self.new.spec_of(x) for x in inputs)
        with settings.restored(place.settings):
            return place.device.planner.resolution(op, specs, tuple(outputs), bound).is_native


def can_fuse(node: Node) -> bool:
    """Return whether a node's device may have kernels for groups of ops, and may round differently from ops run one by one."""
    if node.origin is None or not node.origin.device.features & Feature.LOWERING:
        return False
    return not node.origin.device.capabilities.reference
