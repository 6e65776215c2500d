"""Crossings: transfers and collectives of a graph in several parts, each in the order of its own device.

A transfer through the host becomes a *send*, which the source does as soon as the value exists, and a *receive*, which the
target does when the value is used first. A collective becomes a *start* on each of its devices, as soon as what it reads there
exists, the collective itself, which runs beside the devices' other work, and a *join* on each device before the first use of
its result. So does a transfer between devices that copy from each other. Tensors without elements make receives and joins
depend on what they wait for.

Where a communicator can, the devices carry out a collective in line instead: each has a *member* node in its own order, and
nothing runs beside it. Those of a collective stand together, so that all devices come to collectives in the same order.

Each device runs its nodes in the order of the graph, on a thread of its own; so do the collectives. They wait for each other in
receives, joins and collectives only. That ends: all that comes before the first node that has not run is done, and what a node
waits for comes before it.

Memory may be used again in the order of the nodes of its device. A send reads in this order, too: the read is part of the work
of the device. A result of a collective is made by the start, and both what is read and what is written are read by the join: so
nothing else lies there from the start to the join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal import dtypes
from polyhal.hal.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.ir.rewriter import GraphRewriter
from polyhal.hal.layout import contiguous
from polyhal.hal.memory.peer_copies import has_peer_copy
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.hal.ops.schema import REQUIRED, Schema
from polyhal.hal.ops.traits import Trait
from polyhal.hal.passes.gather_again import is_temporary
from polyhal.hal.protocol import Feature

if TYPE_CHECKING:
    from polyhal.hal.device import Device


def _part(name: str, doc: str, schema: Schema) -> OpDef:
    """An op that only the scheduler puts into graphs."""
    transfer = OPS["transfer"]
    return OpDef(
        name=name, family=transfer.family, doc=doc, schema=schema, infer=transfer.infer, reference=transfer.reference,
        traits=Trait.CROSS_DEVICE, public=False,
    )  # fmt: skip


_ANY = Schema(("xs",), variadic=True)
SEND = _part("send", "The part of a transfer that the source does.", Schema(("x",)))
RECEIVE = _part("receive", "The part of a transfer that the target does.", Schema(("sent",)))
START = _part("collective_start", "What a member of a collective gives is there; what it gets may be written.", _ANY)
COLLECTIVE = _part(
    "collective", "Reads and writes what was started.", Schema(("xs",), variadic=True, params=OPS["collective"].schema.params)
)
PEER_COPY = _part("peer_copy", "Copies what was started from one device to another.", _ANY)
MEMBER = _part(
    "collective_member", "What one device does of a collective, in line with its other work.",
    Schema(("xs",), variadic=True, params={**OPS["collective"].schema.params, "member": REQUIRED}),
)  # fmt: skip
JOIN = _part("collective_join", "What a member of a collective gave is free, and what it gets is there.", _ANY)
TOKEN = contiguous(dtypes.uint8, (0,))
"""The spec of what stands for a dependency."""

_LARGE = 1 << 20
"""Bytes from which a copy without the host is worth a lane of its own between two devices in the memory of the host."""
_UNDER_WAY = 2
"""Collectives and transfers under way to which a device gives more than it gets, and holds it, before it waits for one."""

_Place = tuple[int, int, int, int]
"""Where a part goes: places are compared like tuples."""


class _Entry(NamedTuple):
    """A part of a node, and its place."""

    place: _Place
    node: int
    part: OpDef | None = None
    """None for the node itself."""
    device: Any = None
    """Of a start, join or member."""


def split_crossings(graph: Graph, devices: Sequence[Any]) -> Graph:
    """The graph with parts in place of transfers and collectives. `devices` are those of the values.

    The order of all other nodes that run stays as it is.
    """
    if not any(map(_crosses, graph.nodes)):
        return graph
    writer = _Writer(graph, devices)
    for entry in sorted(_Order(graph, devices).entries(), key=lambda entry: entry.place):
        writer.write(entry)
    return writer.rewriter.finish()


def stands_for_collective(node: Node) -> bool:
    """Whether a node is a collective of its own, or the first of those that together are one."""
    return node.op is COLLECTIVE or (node.op is MEMBER and node.params[-1] == 0)


def _crosses(node: Node) -> bool:
    return Trait.CROSS_DEVICE in node.op.traits


class _Members:
    """What the devices of a collective or transfer give and get."""

    def __init__(self, graph: Graph, node: Node, devices: Sequence[Any]) -> None:
        self.given: dict[Device, int] = {devices[v]: v for v in node.reads}
        self.got: dict[Device, int] = dict(zip(node.output_devices, node.outputs, strict=True))
        self.devices = list(dict.fromkeys((*self.given, *self.got)))
        self.collective = Trait.COLLECTIVE in node.op.traits
        self.relayed = not self.collective and not _beside(self.devices, graph.tensor(node.outputs[0]).nbytes)
        """Whether it is a transfer through the host."""


def _beside(devices: Sequence[Device], nbytes: int) -> bool:
    """Whether a transfer of so many bytes is a copy of the target, beside the other work of both devices."""
    if len(devices) == 1:
        return False  # a stored step was loaded for one device
    source, target = devices
    if nbytes < _LARGE and source.capabilities.unified_memory and target.capabilities.unified_memory:
        return False
    return bool(Feature.STREAMS & source.features & target.features) and has_peer_copy(source, target)


class _Order:
    """Finds places for the parts of transfers and collectives, and for views of what they read and make."""

    def __init__(self, graph: Graph, devices: Sequence[Any]) -> None:
        self._graph = graph
        self._devices = devices
        self._crosses = [_crosses(node) for node in graph.nodes]
        self._end: _Place = (len(graph.nodes), 0, 0, 0)
        self._before = list(range(len(graph.nodes)))
        """Before which node each node goes: itself, or for views of what arrives the first user."""
        self._arrival: dict[int, int] = {}
        """The same for what arrives, by value."""
        for k in range(len(graph.nodes) - 1, -1, -1):
            for v in graph.nodes[k].outputs:
                if self._crosses[k]:
                    self._arrival[v] = self._first_use(v)
                elif (source := graph.producer_index(graph.root(v))) >= 0 and self._crosses[source]:
                    self._before[k] = self._first_use(v)

    def _first_use(self, value: int) -> int:
        """Before which node a value has to be there. What is sent on at once is not wanted when it arrives, but now."""
        users = self._graph.user_indices(value)
        return min([u if self._crosses[u] else self._before[u] for u in users], default=len(self._graph.nodes))

    def entries(self) -> Iterator[_Entry]:
        """All parts of all nodes, in no order."""
        early: dict[int, _Place] = {}
        """The places of views of what is read."""
        started: dict[Device, list[tuple[int, _Place, _Place]]] = {}
        """The nodes that hold memory of a device which it need not wait for, with the places of starts and first uses."""
        for k, node in enumerate(self._graph.nodes):
            if not self._crosses[k]:
                continue
            starts: dict[int, _Place] = {v: (*self._after_source(v, early), 1, k) for v in node.reads}
            members = _Members(self._graph, node, self._devices)
            if members.relayed:
                yield _Entry(starts[node.value(0)], k, SEND)
                yield _Entry((self._arrival[node.outputs[0]], k, 0, 0), k, RECEIVE)
                continue
            if members.collective and node.params[1].in_line:
                yield from (_Entry((k, k, 0, i), k, MEMBER, d) for i, d in enumerate(node.params[1].devices))
                continue
            yield _Entry((k, k, 0, 0), k, COLLECTIVE if members.collective else PEER_COPY)
            for device in members.devices:
                given, got = members.given.get(device), members.got.get(device)
                place = (k, k, -1, 0) if given is None or is_temporary(node) else starts[given]
                yield _Entry(place, k, START, device)
                use = self._end if got is None else (self._arrival[got], k, 0, 0)
                if self._bytes(given) > self._bytes(got) or use[0] == self._end[0]:  # or has no use for what it gets
                    started.setdefault(device, []).append((k, place, use))
                elif got is not None:
                    yield _Entry(use, k, JOIN, device)
        for device, starts_there in started.items():
            for n, (k, _, use) in enumerate(starts_there):
                later = [place for _, place, _ in starts_there[n + _UNDER_WAY :]]
                yield _Entry(min(use, max((k, k, 0, 1), min(later, default=self._end))), k, JOIN, device)
        for k, crosses in enumerate(self._crosses):
            if not crosses:
                yield _Entry(early.get(k, (self._before[k], k, 0, 0)), k)

    def _bytes(self, value: int | None) -> int:
        return 0 if value is None else self._graph.tensor(value).nbytes

    def _after_source(self, value: int, early: dict[int, _Place]) -> tuple[int, int]:
        """What writes a value, as the beginning of a place. Views between go right behind it, too."""
        graph, root = self._graph, self._graph.root(value)
        source = graph.producer_index(root)
        place = (self._arrival.get(root, source), source)
        while graph.root(value) != value:
            view = graph.producer_index(value)
            early[view] = (*place, 1, view)
            value = graph.nodes[view].value(0)
        return place


class _Writer:
    """Writes the parts of nodes, in the order in which they come."""

    def __init__(self, graph: Graph, devices: Sequence[Any]) -> None:
        self._graph = graph
        self._devices = devices
        self.rewriter = GraphRewriter(graph)
        self._tokens: dict[int, Value] = {}
        """What receives and joins depend on, by node."""
        self._started: dict[tuple[int, Any], Value] = {}
        """Results of starts, by node and device."""

    def write(self, entry: _Entry) -> None:
        """Add a part of a node."""
        _, k, part, device = entry
        node, rewriter = self._graph.nodes[k], self.rewriter
        if part is None:
            rewriter.keep(node)
        elif part is SEND:
            source = self._devices[node.value(0)]
            self._tokens[k] = self._add(node, SEND, rewriter.operands(node), source)
        elif part is RECEIVE:
            (out,) = node.outputs
            received = self._add(node, RECEIVE, (self._tokens[k],), node.device, self._graph.tensor(out))
            rewriter.replace_all_uses(out, received)
        elif part is MEMBER:
            self._write_member(node, device)
        else:
            self._write_collective(k, node, part, device)

    def _write_member(self, node: Node, device: Device) -> None:
        members, rewriter = _Members(self._graph, node, self._devices), self.rewriter
        given, got = members.given.get(device), members.got.get(device)
        operands = () if given is None else (rewriter.operand(Value(given)),)
        spec = TOKEN if got is None else self._graph.tensor(got)
        params = (*node.params, node.params[1].devices.index(device))
        result = self._add(node, MEMBER, operands, device, spec, params)
        if got is not None:
            rewriter.replace_all_uses(got, result)

    def _write_collective(self, k: int, node: Node, part: OpDef, device: Device) -> None:
        members, rewriter = _Members(self._graph, node, self._devices), self.rewriter
        if part in (COLLECTIVE, PEER_COPY):
            operands = (*rewriter.operands(node), *[self._started[k, d] for d in members.devices])
            self._tokens[k] = self._add(node, part, operands, node.device, params=node.params)
            return
        given, got = members.given.get(device), members.got.get(device)
        operands = () if given is None else (rewriter.operand(Value(given)),)
        if part is START:
            spec = TOKEN if got is None else self._graph.tensor(got)
            self._started[k, device] = result = self._add(node, START, operands, device, spec)
            if got is not None:
                rewriter.replace_all_uses(got, result)
        else:
            self._add(node, JOIN, (self._tokens[k], self._started[k, device], *operands), device)

    def _add(
        self, node: Node, op: OpDef, operands: Sequence[Operand], device: Any, spec: Any = TOKEN, params: Any = ()
    ) -> Value:
        origin = node.place._replace(device=device)
        (result,) = self.rewriter.new.add(op, tuple(operands), params, [spec], origin)
        return Value(result)
