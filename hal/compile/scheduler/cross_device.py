"""Lower cross-device ops: a transfer becomes send + receive; a collective start + run + join, or one enqueue per device.

There are three lowerings:

- A transfer through the host: the source runs *send* as soon as it has computed the value, and the target runs *receive* right
  before the first use.
- An overlapped collective, or a copy between peer devices: states as in the table below. It runs on a worker thread and on
  streams of its own.
- A collective on compute streams, where `Communicator.on_compute_stream` is set: each device has one *enqueue* node. The
  enqueue nodes of a collective are adjacent, so that all devices reach collectives in the same order.

| state on a device | entered                           | send buffer     | receive buffer         | left by      |
|-------------------|-----------------------------------|-----------------|------------------------|--------------|
| pending           | when the step begins              | may be written  | may hold other values  | `START`      |
| started           | when the send buffer is complete  | must not change | reserved               | `COLLECTIVE` |
| running           | when every participant has started| is read         | is written             | `JOIN`       |
| joined            | by the first use of the result    | may be reused   | complete               |              |

`START` and `JOIN` run in the order of the device's own nodes, `COLLECTIVE` and `PEER_COPY` on a communication worker. A
temporary gather, and a device without a send buffer, start right before the op runs: this reserves the receive buffer late.
`ENQUEUE` goes from pending to joined in one node, because later work on the compute stream waits for it anyway.

No deadlock: each device's worker thread runs its nodes in graph order, and so do the communication workers. They block only in
receive, join and collective nodes, and every node is preceded in the graph by the nodes that it waits for. So the first node of
the graph that has not run is never blocked. Tensors without elements (tokens) express these dependencies in the graph.

Memory is reused in the order of a device's nodes. A send reads its operand in this order, since the read is enqueued on the
device. The receive buffer of a collective is an output of the start, and the join reads both buffers, so their memory is
reserved from the start to the join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal import dtypes
from polyhal.hal.compile.ir.graph import Graph, Node, Operand, Value
from polyhal.hal.compile.ir.rewriter import GraphRewriter
from polyhal.hal.compile.passes.regather import is_temporary
from polyhal.hal.core.memory.peer_copies import has_peer_copy
from polyhal.hal.layout import contiguous
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.hal.ops.schema import REQUIRED, Schema
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import Feature

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.layout import Spec


def _part(name: str, doc: str, schema: Schema) -> OpDef:
    """Return an op that only the scheduler adds to graphs."""
    transfer = OPS["transfer"]
    return OpDef(
        name=name,
        family=transfer.family,
        doc=doc,
        schema=schema,
        infer=transfer.infer,
        reference=transfer.reference,
        traits=Trait.CROSS_DEVICE,
        public=False,
    )


_ANY = Schema(("xs",), variadic=True)
SEND = _part("send", "Read a value on its source device, to be sent through the host.", Schema(("x",)))
RECEIVE = _part("receive", "Wait for a value sent through the host and write it to the target.", Schema(("sent",)))
START = _part("collective_start", "Mark a participant's send buffer as ready and its receive buffer as writable.", _ANY)
COLLECTIVE = _part(
    "collective",
    "Run a collective once all its participants have started.",
    Schema(("xs",), variadic=True, params=OPS["collective"].schema.params),
)
PEER_COPY = _part("peer_copy", "Copy a value between peer devices once both have started.", _ANY)
ENQUEUE = _part(
    "collective_enqueue",
    "Enqueue one device's part of a collective on its compute stream.",
    Schema(("xs",), variadic=True, params={**OPS["collective"].schema.params, "member": REQUIRED}),
)
JOIN = _part("collective_join", "Wait until the send buffer is reusable and the receive buffer complete.", _ANY)
TOKEN = contiguous(dtypes.uint8, (0,))
"""Spec of a token: an empty tensor that expresses a dependency."""

_LARGE = 1 << 20
"""Minimum bytes of a peer copy between two devices that use host memory: a smaller one costs less through a host relay."""
_IN_FLIGHT = 2
"""Maximum number of in-flight ops per device that receive fewer bytes than they send, or whose results are unused.

Their joins are deferred, and their send buffers stay reserved until then.
"""

_Position = tuple[int, int, int, int]
"""Schedule position of a part: the node of the original schedule at which it is placed, then tie-breakers."""


class _Entry(NamedTuple):
    """A part of a lowered node, and its schedule position."""

    position: _Position
    node: int
    part: OpDef | None = None
    """Op of the part; None for a node that is kept unchanged."""
    device: Any = None
    """Device of a start, join or enqueue node; None for other parts."""


def lower_cross_device_ops(graph: Graph, devices: Sequence[Any]) -> Graph:
    """Return the graph with transfers and collectives lowered to their parts; `devices` has the device of each value.

    All other nodes keep their order, except views of operands and results.
    """
    if not any(map(_is_cross_device, graph.nodes)):
        return graph
    writer = _Writer(graph, devices)
    for entry in sorted(_Order(graph, devices).entries(), key=lambda entry: entry.position):
        writer.write(entry)
    return writer.rewriter.finish()


def represents_collective(node: Node) -> bool:
    """Return whether to count a node as a collective: COLLECTIVE, or the first ENQUEUE node of a collective."""
    return node.op is COLLECTIVE or (node.op is ENQUEUE and node.params[-1] == 0)


def _is_cross_device(node: Node) -> bool:
    return Trait.CROSS_DEVICE in node.op.traits


class _Participants:
    """Devices of a collective or transfer, with their send and receive buffers."""

    def __init__(self, graph: Graph, node: Node, devices: Sequence[Any]) -> None:
        self.sent: dict[Device, int] = {devices[v]: v for v in node.reads}
        """Value of each device's send buffer."""
        self.received: dict[Device, int] = dict(zip(node.output_devices, node.outputs, strict=True))
        """Value of each device's receive buffer."""
        self.devices = list(dict.fromkeys((*self.sent, *self.received)))
        self.collective = Trait.COLLECTIVE in node.op.traits
        self.relayed = not self.collective and not _overlaps(self.devices, graph.tensor(node.outputs[0]).nbytes)
        """True if it is a transfer through the host."""


def _overlaps(devices: Sequence[Device], nbytes: int) -> bool:
    """Return whether a transfer of `nbytes` bytes is a peer copy that overlaps with other work of both devices."""
    if len(devices) == 1:
        return False  # a stored step was loaded for one device
    source, target = devices
    if nbytes < _LARGE and source.capabilities.unified_memory and target.capabilities.unified_memory:
        return False
    return bool(Feature.STREAMS & source.features & target.features) and has_peer_copy(source, target)


class _Order:
    """Schedule positions of the parts of transfers and collectives, and of views of their operands and results."""

    def __init__(self, graph: Graph, devices: Sequence[Any]) -> None:
        self._graph = graph
        self._devices = devices
        self._crosses = [_is_cross_device(node) for node in graph.nodes]
        self._end: _Position = (len(graph.nodes), 0, 0, 0)
        self._before = list(range(len(graph.nodes)))
        """Node before which each node is scheduled: itself, or, for a view of a received value, its first consumer."""
        self._arrival: dict[int, int] = {}
        """Latest node before which each received value must have arrived."""
        for k in range(len(graph.nodes) - 1, -1, -1):
            for v in graph.nodes[k].outputs:
                if self._crosses[k]:
                    self._arrival[v] = self._first_use(v)
                elif (source := graph.producer_index(graph.root(v))) >= 0 and self._crosses[source]:
                    self._before[k] = self._first_use(v)

    def _first_use(self, value: int) -> int:
        """Return the latest node before which a value must have arrived. Forwarding it to another device counts as a use."""
        users = self._graph.user_indices(value)
        return min([u if self._crosses[u] else self._before[u] for u in users], default=len(self._graph.nodes))

    def entries(self) -> Iterator[_Entry]:
        """Yield all parts of all nodes, unordered."""
        early: dict[int, _Position] = {}
        """Positions of views of operands."""
        deferred: dict[Device, list[tuple[int, _Position, _Position]]] = {}
        """Per device the ops whose join may be deferred, as (node, position of the start, position of the first use)."""
        for k, node in enumerate(self._graph.nodes):
            if not self._crosses[k]:
                continue
            starts: dict[int, _Position] = {v: (*self._after_source(v, early), 1, k) for v in node.reads}
            participants = _Participants(self._graph, node, self._devices)
            if participants.relayed:
                yield _Entry(starts[node.value(0)], k, SEND)
                yield _Entry((self._arrival[node.outputs[0]], k, 0, 0), k, RECEIVE)
                continue
            if participants.collective and node.params[1].on_compute_stream:
                yield from (_Entry((k, k, 0, i), k, ENQUEUE, d) for i, d in enumerate(node.params[1].devices))
                continue
            yield _Entry((k, k, 0, 0), k, COLLECTIVE if participants.collective else PEER_COPY)
            for device in participants.devices:
                sent, received = participants.sent.get(device), participants.received.get(device)
                position = (k, k, -1, 0) if sent is None or is_temporary(node) else starts[sent]
                yield _Entry(position, k, START, device)
                use = self._end if received is None else (self._arrival[received], k, 0, 0)
                if self._bytes(sent) > self._bytes(received) or use[0] == self._end[0]:  # or the result is unused
                    deferred.setdefault(device, []).append((k, position, use))
                elif received is not None:
                    yield _Entry(use, k, JOIN, device)
        for device, ops in deferred.items():
            for n, (k, _, use) in enumerate(ops):
                later = [position for _, position, _ in ops[n + _IN_FLIGHT :]]
                yield _Entry(min(use, max((k, k, 0, 1), min(later, default=self._end))), k, JOIN, device)
        for k, crosses in enumerate(self._crosses):
            if not crosses:
                yield _Entry(early.get(k, (self._before[k], k, 0, 0)), k)

    def _bytes(self, value: int | None) -> int:
        return 0 if value is None else self._graph.tensor(value).nbytes

    def _after_source(self, value: int, early: dict[int, _Position]) -> tuple[int, int]:
        """Return the start of the position right after the producer of a value. Views in between follow it directly, too."""
        graph, root = self._graph, self._graph.root(value)
        source = graph.producer_index(root)
        position = (self._arrival.get(root, source), source)
        while graph.root(value) != value:
            view = graph.producer_index(value)
            early[view] = (*position, 1, view)
            value = graph.nodes[view].value(0)
        return position


class _Writer:
    """Builder of the lowered graph, to which parts are added in order."""

    def __init__(self, graph: Graph, devices: Sequence[Any]) -> None:
        self._graph = graph
        self._devices = devices
        self.rewriter = GraphRewriter(graph)
        self._tokens: dict[int, Value] = {}
        """Token that receives and joins depend on, by node."""
        self._started: dict[tuple[int, Any], Value] = {}
        """Result of each start, by node and device."""

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
        elif part is ENQUEUE:
            self._write_enqueue(node, device)
        else:
            self._write_collective(k, node, part, device)

    def _write_enqueue(self, node: Node, device: Device) -> None:
        participants, rewriter = _Participants(self._graph, node, self._devices), self.rewriter
        sent, received = participants.sent.get(device), participants.received.get(device)
        operands = () if sent is None else (rewriter.operand(Value(sent)),)
        spec = TOKEN if received is None else self._graph.tensor(received)
        params = (*node.params, node.params[1].devices.index(device))
        result = self._add(node, ENQUEUE, operands, device, spec, params)
        if received is not None:
            rewriter.replace_all_uses(received, result)

    def _write_collective(self, k: int, node: Node, part: OpDef, device: Device) -> None:
        participants, rewriter = _Participants(self._graph, node, self._devices), self.rewriter
        if part in (COLLECTIVE, PEER_COPY):
            operands = (*rewriter.operands(node), *[self._started[k, d] for d in participants.devices])
            self._tokens[k] = self._add(node, part, operands, node.device, params=node.params)
            return
        sent, received = participants.sent.get(device), participants.received.get(device)
        operands = () if sent is None else (rewriter.operand(Value(sent)),)
        if part is START:
            spec = TOKEN if received is None else self._graph.tensor(received)
            self._started[k, device] = result = self._add(node, START, operands, device, spec)
            if received is not None:
                rewriter.replace_all_uses(received, result)
        else:
            self._add(node, JOIN, (self._tokens[k], self._started[k, device], *operands), device)

    def _add(
        self, node: Node, op: OpDef, operands: Sequence[Operand], device: Device, spec: Spec = TOKEN, params: Any = ()
    ) -> Value:
        origin = node.place._replace(device=device)
        (result,) = self.rewriter.new.add(op, tuple(operands), params, [spec], origin)
        return Value(result)
