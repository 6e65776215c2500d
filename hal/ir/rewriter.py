"""What passes are written with: a new graph that grows while an old one is read, and who uses which value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dispatch
from polyhal.hal.ir.graph import Graph, Node, Operand, Origin
from polyhal.hal.layout import Spec, contiguous, place
from polyhal.hal.ops.opdef import OpDef, Value
from polyhal.hal.planning.resolution import Step
from polyhal.hal.protocol import Feature
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.capture.result import CapturedConstant


class Rewriting:
    """A graph in the making. Old nodes are kept, or their values are said to be others of the new graph."""

    def __init__(self, old: Graph, constants: Sequence[CapturedConstant] = ()) -> None:
        """`constants` become inputs of the new graph, after those of the old one."""
        self.old = old
        self.new = Graph([*old.specs[: old.inputs], *[c.ref.spec for c in constants]])
        self.new.constants = [*old.constants, *constants]
        self.new.names = dict.fromkeys(range(old.inputs, self.new.inputs), "constant")
        self.makers: dict[int, Node] = {}
        """The nodes of the new graph by the values that they make."""
        self._now: dict[int, Operand] = {i: Value(i) for i in range(old.inputs)}

    def operand(self, x: Operand) -> Operand:
        """An operand of the old graph in the new one."""
        return self._now[x.index] if isinstance(x, Value) else x

    def operands(self, node: Node) -> tuple[Operand, ...]:
        """All operands of an old node in the new graph."""
        now = self._now
        return tuple([now[x.index] if isinstance(x, Value) else x for x in node.inputs])

    def keep(self, node: Node) -> None:
        """Take an old node over as it is."""
        operands, first = self.operands(node), len(self.new.specs)
        if operands != node.inputs or node.outputs != tuple(range(first, first + len(node.outputs))):
            self.put(node, [self.old.specs[v] for v in node.outputs])
            return
        # Most passes leave most nodes alone, numbers included.
        self.new.nodes.append(node)
        for v in node.outputs:
            self.new.specs.append(self.old.specs[v])
            self._now[v] = Value(v)
            self.makers[v] = node

    def put(self, node: Node, specs: Sequence[Any]) -> None:
        """Take an old node over with other layouts of its outputs."""
        made = self._append(node._replace(inputs=self.operands(node)), specs)
        for v, new in zip(node.outputs, made, strict=True):
            self._now[v] = Value(new)

    def equate(self, value: int, operand: Operand) -> None:
        """An old value is this operand of the new graph."""
        self._now[value] = operand

    def add(
        self, op: OpDef, inputs: Sequence[Operand], params: tuple[Any, ...], origin: Origin | None
    ) -> tuple[Value, ...]:
        """Add a node of one's own; its specs follow from the op's rules."""
        specs = tuple(self.new.spec_of(x) for x in inputs)
        bound = op.bind(dispatch.freeze(params))
        inferred = dispatch.infer(op, specs, bound)
        first = specs[0] if specs else None
        view = op.view(first, bound) if op.view is not None and isinstance(first, Spec) else None
        outputs = [place(first, view)] if view is not None else [contiguous(d, s) for d, s in inferred]  # type: ignore[arg-type]
        made = self._append(Node(op, tuple(inputs), tuple(bound.values()), (), origin), outputs)
        return tuple(Value(v) for v in made)

    def inline(self, graph: Graph, inputs: Sequence[Operand], origin: Origin | None) -> list[Operand]:
        """Add the nodes of another graph, with `inputs` for its inputs. Returns its outputs."""
        now: dict[int, Operand] = dict(enumerate(inputs))
        for node in graph.nodes:
            operands = tuple(now[x.index] if isinstance(x, Value) else x for x in node.inputs)
            specs = [graph.specs[v] for v in node.outputs]
            made = self._append(Node(node.op, operands, node.params, (), origin), specs)
            now.update(zip(node.outputs, map(Value, made), strict=True))
        return [now[v] for v in graph.outputs]

    def infer(self, op: OpDef, inputs: Sequence[Operand], params: tuple[Any, ...]) -> list[Spec]:
        """What an op would make of operands of the new graph. Raises what the op's rules raise."""
        specs = tuple(self.new.spec_of(x) for x in inputs)
        return [contiguous(d, s) for d, s in dispatch.infer(op, specs, op.bind(dispatch.freeze(params)))]

    def has_kernel(self, op: OpDef, inputs: Sequence[Operand], params: tuple[Any, ...], origin: Origin) -> bool:
        """Whether the device has a kernel of its own for an op on operands of the new graph."""
        specs = tuple(self.new.spec_of(x) for x in inputs)
        bound = op.bind(dispatch.freeze(params))
        outputs = tuple(contiguous(d, s) for d, s in dispatch.infer(op, specs, bound))
        with settings.restored(origin.settings):
            return origin.device.planner.resolve(op, specs, outputs, bound)[2].step is Step.NATIVE

    def can_place(self, node: Node, inputs: Sequence[Operand], outputs: Sequence[Any]) -> bool:
        """Whether the device has a kernel of its own for an old node on operands of the new graph, with these outputs."""
        assert node.origin is not None
        specs = tuple(self.new.spec_of(x) for x in inputs)
        with settings.restored(node.origin.settings):
            planner = node.origin.device.planner
            return planner.resolve(node.op, specs, tuple(outputs), node.op.bind(node.params))[2].step is Step.NATIVE

    def finish(self) -> Graph:
        """The new graph, with the outputs and updates of the old one."""
        self.new.outputs = tuple(self._slot(v) for v in self.old.outputs)
        self.new.updates = {i: self._slot(v) for i, v in self.old.updates.items()}
        self.new.names |= {i: name for i, name in self.old.names.items() if i < self.old.inputs}
        return self.new

    def _append(self, node: Node, specs: Sequence[Any]) -> tuple[int, ...]:
        made = self.new.add(node.op, node.inputs, node.params, specs, node.origin, node.replaces)
        for v in made:
            self.makers[v] = self.new.nodes[-1]
        return made

    def _slot(self, value: int) -> int:
        operand = self._now[value]
        assert isinstance(operand, Value), "a result of a graph is a value"
        return operand.index


def has_groups(origin: Origin | None) -> bool:
    """Whether a node's device may have kernels for groups of ops, and may round otherwise than op by op."""
    if origin is None or not origin.device.features & Feature.LOWERING:
        return False
    return not origin.device.capabilities.reference


def uses(graph: Graph) -> list[int]:
    """How often each value is read: by nodes, and as an output or update."""
    count = [0] * len(graph.specs)
    for node in graph.nodes:
        for x in node.inputs:
            if isinstance(x, Value):
                count[x.index] += 1
    for v in (*graph.outputs, *graph.updates.values()):
        count[v] += 1
    return count
