"""The intermediate representation of a computation: values with specs, and nodes that apply ops to them.

A graph is in single-assignment form: every node defines new values, views are nodes like any other, and a write in place is
a new value. The graph knows the producer and the users of every value, so that no pass builds maps of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.core import dispatch
from polyhal.hal.core.execution.location import UNKNOWN, SourceLocation
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, ScalarSpec, Spec, View, contiguous, place
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import InputSpec, Number

if TYPE_CHECKING:
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.hal.device import Device
    from polyhal.hal.ops.schema import ParamValues


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value, by its index among the specs of its graph."""

    index: int


Operand = Value | Number | None
"""A value, a literal Python number, or an absent optional input."""


class CapturedConstant(NamedTuple):
    """A graph input that stays where it is: parameters, state, constants. Its contents may change, its memory not."""

    buffer: Buffer
    ref: Ref
    device: Device
    frozen: bool = False
    """True if it was made from host data while the step was recorded: no run changes its contents."""


class NodeOrigin(NamedTuple):
    """Where a node of a captured step was recorded, and the settings in force there."""

    device: Device
    settings: tuple[Any, ...]
    """Key of `hal.core.settings` at the time."""
    module: str = ""
    """Path of the module whose forward or backward pass the node belongs to."""
    checkpoint: int = 0
    """Number of the checkpointed region that recomputes the node; 0 for none."""
    location: SourceLocation = UNKNOWN
    """The user's line that called the op; not compared."""

    @property
    def merge_key(self) -> tuple[Any, ...]:
        """Facts that nodes must share to become one. A recomputed node must not be merged with the first computation."""
        return self.device, self.settings, self.checkpoint


class Node(NamedTuple):
    """One op applied to operands. `origin` is None in decompositions."""

    op: OpDef
    inputs: tuple[Operand, ...]
    params: tuple[Any, ...]
    outputs: tuple[int, ...]
    origin: NodeOrigin | None = None
    replaces: tuple[int, ...] = ()
    """Per output, the operand whose buffer it may reuse if that operand is dead; -1 for none."""

    @property
    def reads(self) -> list[int]:
        """The values among the operands, with repetitions."""
        return [x.index for x in self.inputs if isinstance(x, Value)]

    def value(self, position: int) -> int:
        """The value that is the operand at `position`. Raises TypeError for a literal or absent one."""
        x = self.inputs[position]
        if not isinstance(x, Value):
            raise TypeError(f"operand {position} of {self.op} is {x!r}; expected a value")
        return x.index

    @property
    def bound(self) -> dict[str, Any]:
        """Parameters by name."""
        return self.op.bind(self.params)

    @property
    def place(self) -> NodeOrigin:
        """The origin of a captured node. Raises TypeError for a node of a decomposition, which has none."""
        if self.origin is None:
            raise TypeError(f"{self.op} of a decomposition has no origin")
        return self.origin

    @property
    def device(self) -> Device:
        """The device on which a captured node runs."""
        return self.place.device

    @property
    def output_devices(self) -> tuple[Device, ...]:
        """The device of each output."""
        if Trait.COLLECTIVE in self.op.traits:
            collective, communicator, _ = self.params
            return tuple(communicator.devices[i] for i, _ in communicator.targets(collective))
        return (self.device,) * len(self.outputs)

    def merges_with(self, other: Node) -> bool:
        """Return whether both were captured on one device, under the same settings and in the same checkpointed region."""
        a, b = self.origin, other.origin
        return a is not None and b is not None and a.merge_key == b.merge_key


class Signature(NamedTuple):
    """The facts that determine how a node runs on a device. Nodes with equal signatures run by the same kernel."""

    op: OpDef
    inputs: tuple[InputSpec | None, ...]
    outputs: tuple[Spec, ...]
    params: str
    """As text, because in Python 1 == 1.0 == True and 0.0 == -0.0."""


class _Uses(NamedTuple):
    """Positions of each value's consumers, and how often it is read; the values that outlive the graph."""

    users: list[list[int]]
    counts: list[int]
    live_outs: frozenset[int]


class Graph:
    """Values 0..n-1, the inputs first; nodes in execution order; outputs.

    `updates` maps inputs to the values that replace them in their memory after a run. The last inputs may be `constants`,
    which passes computed. Questions about uses are answered for a complete graph, from tables built once.
    """

    __slots__ = (
        "_producers",
        "_roots",
        "_uses",
        "_view_offsets",
        "constants",
        "frozen",
        "inputs",
        "names",
        "nodes",
        "outputs",
        "specs",
        "updates",
    )

    def __init__(self, inputs: Sequence[InputSpec | None] = ()) -> None:
        self.specs: list[InputSpec | None] = list(inputs)
        self.inputs = len(self.specs)
        self.nodes: list[Node] = []
        self.outputs: tuple[int, ...] = ()
        self.updates: dict[int, int] = {}
        self.constants: list[CapturedConstant] = []
        self.frozen: dict[int, CapturedConstant] = {}
        """Inputs that were made from host data while the step was recorded, whose elements are equal in all runs."""
        self.names: dict[int, str] = {}
        """Names of inputs and outputs, for those that have one."""
        self._producers = [-1] * self.inputs
        self._uses: _Uses | None = None
        self._view_offsets: dict[int, int | None] = {}
        """By the output of a node."""
        self._roots: dict[int, tuple[int, int]] = {}
        """Values with their roots and the offsets in these, as far as they were asked for."""

    # --- building ---------------------------------------------------------------------------------------------------

    def add_input(self, spec: InputSpec | None) -> int:
        """Add an input, before all nodes. Returns its value."""
        self.specs.append(spec)
        self._producers.append(-1)
        self.inputs += 1
        return self.inputs - 1

    def add(
        self,
        op: OpDef,
        inputs: tuple[Operand, ...],
        params: ParamValues,
        specs: Sequence[InputSpec | None],
        origin: NodeOrigin | None = None,
        replaces: tuple[int, ...] = (),
    ) -> tuple[int, ...]:
        """Append a node whose outputs have `specs`. Returns the outputs."""
        first = len(self.specs)
        outputs = tuple(range(first, first + len(specs)))
        self.append(Node(op, inputs, params, outputs, origin, replaces), specs)
        return outputs

    def append(self, node: Node, specs: Sequence[InputSpec | None]) -> None:
        """Append a node whose outputs are the next free values."""
        self._producers += [len(self.nodes)] * len(specs)
        self.nodes.append(node)
        self.specs += specs
        self._uses = None

    def returning(self, count: int) -> Graph:
        """This graph with only the first `count` outputs."""
        graph = Graph()
        for name in Graph.__slots__:
            setattr(graph, name, getattr(self, name))
        graph.outputs = self.outputs[:count]
        graph._uses = None
        return graph

    # --- values -----------------------------------------------------------------------------------------------------

    def tensor(self, value: int) -> Spec:
        """The spec of a tensor. Raises TypeError for a number or an absent input."""
        spec = self.specs[value]
        if not isinstance(spec, Spec):
            raise TypeError(f"%{value} is {spec}; expected a tensor")
        return spec

    def is_tensor(self, value: int) -> bool:
        """Return whether a value is a tensor rather than a number."""
        return isinstance(self.specs[value], Spec)

    def spec_of(self, operand: Operand) -> InputSpec | None:
        """The spec of an operand; None for an absent one."""
        if isinstance(operand, Value):
            return self.specs[operand.index]
        return None if operand is None else ScalarSpec(dispatch.scalar_dtype(operand))

    def output_specs(self, node: Node) -> tuple[Spec, ...]:
        """The specs of a node's results."""
        return tuple([self.tensor(v) for v in node.outputs])

    def signature(self, node: Node) -> Signature:
        """The op, specs and parameters of a node."""
        return Signature(
            node.op, tuple([self.spec_of(x) for x in node.inputs]), self.output_specs(node), repr(node.params)
        )

    # --- producers and users ----------------------------------------------------------------------------------------

    def producer(self, value: int) -> Node | None:
        """Return the producer of `value`; None for an input."""
        k = self._producers[value]
        return None if k < 0 else self.nodes[k]

    def made_by(self, x: Operand, *ops: OpDef) -> Node | None:
        """Return the producer of an operand if its op is one of `ops`; None for other nodes, inputs and numbers."""
        node = self.producer(x.index) if isinstance(x, Value) else None
        return node if node is not None and node.op in ops else None

    def producer_index(self, value: int) -> int:
        """Return the position of the producer of `value`; -1 for an input."""
        return self._producers[value]

    def users(self, value: int) -> list[Node]:
        """Return the consumers of `value`, each once, in execution order."""
        return [self.nodes[k] for k in self._used().users[value]]

    def user_indices(self, value: int) -> Sequence[int]:
        """Return the positions of the consumers of `value`, each once, in execution order."""
        return self._used().users[value]

    def use_count(self, value: int) -> int:
        """Return how often `value` is read, by nodes and as an output or update."""
        return self._used().counts[value]

    def is_live_out(self, value: int) -> bool:
        """Return whether `value` is an output or update, and so outlives its consumers."""
        return value in self._used().live_outs

    @property
    def live_outs(self) -> frozenset[int]:
        """The outputs, and the values of updates."""
        return self._used().live_outs

    def _used(self) -> _Uses:
        if self._uses is None:
            users: list[list[int]] = [[] for _ in self.specs]
            counts = [0] * len(self.specs)
            for k, node in enumerate(self.nodes):
                for x in node.inputs:
                    if isinstance(x, Value):
                        counts[x.index] += 1
                        positions = users[x.index]
                        if not positions or positions[-1] != k:
                            positions.append(k)
            ends = (*self.outputs, *self.updates.values())
            for v in ends:
                counts[v] += 1
            self._uses = _Uses(users, counts, frozenset(ends))
        return self._uses

    # --- views ------------------------------------------------------------------------------------------------------

    def view_offset(self, node: Node) -> int | None:
        """Elements between the first element of a view and that of its operand; None for a node that writes memory."""
        if node.op.view is None:
            return None
        out = node.outputs[0]
        if out not in self._view_offsets:
            self._view_offsets[out] = self._offset(node)
        return self._view_offsets[out]

    def is_view(self, node: Node) -> bool:
        """Return whether a node makes a view, so that nothing runs for it."""
        return self.view_offset(node) is not None

    def viewed(self, node: Node) -> int | None:
        """The operand of a node that makes a view; None for a node that writes memory."""
        return node.value(0) if self.is_view(node) else None

    def root(self, value: int) -> int:
        """The value in whose memory `value` is a view, through any number of views; itself if it is none."""
        return self._rooted(value)[0]

    def root_offset(self, value: int) -> int:
        """Elements between the first element of `value` and that of its root."""
        return self._rooted(value)[1]

    def _rooted(self, value: int) -> tuple[int, int]:
        found = self._roots.get(value)
        if found is None:
            node = self.producer(value)
            offset = None if node is None else self.view_offset(node)
            if node is None or offset is None:
                found = value, 0
            else:
                root, distance = self._rooted(node.value(0))
                found = root, distance + offset
            self._roots[value] = found
        return found

    def _offset(self, node: Node) -> int | None:
        spec = self.spec_of(node.inputs[0])
        view = node.op.view(spec, node.bound) if node.op.view is not None and isinstance(spec, Spec) else None
        return None if view is None else view.offset

    def __str__(self) -> str:
        from polyhal.hal.compile.ir.text import write

        return write(self)


def infer_results(
    op: OpDef,
    specs: tuple[InputSpec | None, ...],
    params: dict[str, Any],
    stand_ins: Mapping[DType, DType] | None = None,
) -> tuple[list[Spec], View | None]:
    """Specs of an op's results, and the view that makes the one result without a copy, if there is one.

    `stand_ins` are the device's (see `Device.stand_ins`). `params` may be normalised in place. Raises the errors of the
    op's rules.
    """
    inferred = dispatch.infer(op, specs, params, stand_ins or {})
    first = specs[0] if specs else None
    view = op.view(first, params) if op.view is not None and isinstance(first, Spec) else None
    if view is not None and isinstance(first, Spec):
        return [place(first, view)], view
    return [contiguous(dtype, shape) for dtype, shape in inferred], None


def operand_key(x: Operand) -> Any:
    """A hashable key for an operand. In Python 1 == 1.0 == True and 0.0 == -0.0; type and repr distinguish them."""
    return x if isinstance(x, Value) else (type(x), repr(x))


def postorder(number: int, needs: Callable[[int], Iterable[int]], done: set[int]) -> Iterator[int]:
    """Yield what `number` needs, directly or not, and then itself, leaving out and extending `done`."""
    pending = [number]
    while pending:
        top = pending[-1]
        missing = [n for n in needs(top) if n not in done]
        if missing:
            pending += missing
            continue
        pending.pop()
        if top not in done:
            done.add(top)
            yield top


__all__ = ["Graph", "Node", "NodeOrigin", "Operand", "Signature", "Value", "infer_results", "operand_key", "postorder"]
