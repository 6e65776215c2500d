"""Kernel selection for the nodes of a graph: the calls of a replay, before they are bound to memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.capture.runtime_scalars import current_values
from polyhal.hal.ir.graph import Graph, Node, Value
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.memory.peer_copies import copy_from_peer
from polyhal.hal.planning.resolution import Resolution, ResolutionStep
from polyhal.hal.protocol import Handle
from polyhal.hal.scheduler.asynchronous import AsynchronousCall
from polyhal.hal.scheduler.crossings import COLLECTIVE, JOIN, MEMBER, PEER_COPY, RECEIVE, SEND, START
from polyhal.hal.scheduler.in_line import InLineCall
from polyhal.hal.settings.state import settings
from polyhal.hal.transfers.lane_link import COLLECTIVES, LaneKey, LaneLink
from polyhal.hal.transfers.relay import HostRelay

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.memory.streams import Stream


class NodeCall(NamedTuple):
    """How a node runs: a function, with values of the graph and literals for arguments."""

    run: Callable[..., None]
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...]
    workspace: tuple[int, ...]
    """Bytes of temporaries; their handles follow the outputs."""
    direct: bool
    """Whether `run` takes all arguments in a row, as launches do, rather than as (inputs, outputs)."""
    node: Node
    resolution: Resolution
    link: LaneLink | None = None
    """Where its lane meets others."""
    in_lane: Callable[[Callable[[], None], Mapping[Device, Stream]], None] | None = None
    """What the lane does, given the call without arguments and streams for what runs beside other work; None: it calls."""
    lane: LaneKey = None
    """The lane of what runs beside other work; None for the device's."""

    def bound(
        self, inputs: list[Any], outputs: list[Any], workspace: list[Any], *, runtime_scalars: bool
    ) -> Callable[[], None]:
        """This call without arguments; `runtime_scalars` among the inputs are read at each run."""
        run = self.run
        if not runtime_scalars:
            return partial(run, *inputs, *outputs, *workspace) if self.direct else partial(run, inputs, outputs)

        def refreshed() -> None:
            now = current_values(inputs)
            if self.direct:
                run(*now, *outputs, *workspace)
            else:
                run(now, outputs)

        return refreshed


def select_calls(graph: Graph, aliases: Sequence[tuple[int, ...]]) -> list[NodeCall | None]:
    """The calls of all nodes, given the operands that outputs overwrite; None for views."""
    links: dict[Any, Any] = {}
    return [
        _PARTS[n.op](graph, n, links) if n.op in _PARTS else _select(graph, n, a)
        for n, a in zip(graph.nodes, aliases, strict=True)
    ]


def _select(graph: Graph, node: Node, aliases: tuple[int, ...]) -> NodeCall | None:
    """Resolve a node; `aliases` gives the operand that each output overwrites, and is empty if nothing runs for the node."""
    if not aliases:
        return None
    specs = tuple(graph.spec_of(x) for x in node.inputs)
    overwritten = aliases if any(a >= 0 for a in aliases) else ()
    with settings.restored(node.place.settings):
        planner = node.device.planner
        run, launch, note = planner.resolve(node.op, specs, graph.output_specs(node), node.bound, overwritten)
    if launch is not None:
        return NodeCall(launch, node.inputs, node.outputs, launch.workspace, True, node, note)
    return NodeCall(run, node.inputs, node.outputs, (), False, node, note)


def _send(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    """A read of a value by its own device, through contiguous memory."""
    spec, device, (token,) = graph.tensor(node.value(0)), node.device, node.outputs
    (receiver,) = graph.users(token)
    dense = contiguous(spec.dtype, spec.shape)
    relay = links[token] = HostRelay(device, receiver.device, dense.nbytes)

    def send(source: Ref, token: Ref, *between: Handle) -> None:
        if between:
            target = Ref(between[0], dense, 0)
            device.backend.copy(source, target)
            source = target
        relay.send(source)

    workspace = () if spec.is_contiguous or not spec.size else (dense.nbytes,)
    note = _note(graph, node, f"to {receiver.device} through the host")
    return NodeCall(send, node.inputs, node.outputs, workspace, True, node, note, relay)


def _receive(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    relay: HostRelay = links[node.value(0)]

    def receive(token: Ref, target: Ref) -> None:
        relay.receive(target)

    note = _note(graph, node, f"from {relay.source} through the host")
    return NodeCall(receive, node.inputs, node.outputs, (), True, node, note, relay)


def _start(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    made = next(n for n in graph.users(node.outputs[0]) if n.op in (COLLECTIVE, PEER_COPY))
    (key,) = made.outputs
    if key not in links:
        links[key] = AsynchronousCall([d for d, _ in _members(graph, made)])
    call: AsynchronousCall = links[key]
    note = _note(graph, node, f"of {made.params[0]}" if made.params else "")
    return NodeCall(
        _nothing, node.inputs, (), (), True, node, note, call, lambda run, streams: call.start(node.device)
    )


def _collective(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    """A collective, carried out by its communicator beside other work."""
    collective, communicator, _ = node.params
    count = len(communicator.devices)
    givers = [i for i, _ in communicator.sources(collective)]
    getters = [i for i, _ in communicator.targets(collective)]
    results = dict(_members(graph, node))
    call: AsynchronousCall = links[node.outputs[0]]

    def run(inputs: Sequence[Ref], outputs: Sequence[Ref]) -> None:
        sources: list[Ref | None] = [None] * count
        targets: list[Ref | None] = [None] * count
        for i, x in zip(givers, inputs, strict=False):
            sources[i] = x
        for i, x in zip(getters, inputs[len(givers) :], strict=True):
            targets[i] = x
        communicator.run(collective, sources, targets)

    got = tuple(Value(results[communicator.devices[i]]) for i in getters)
    note = _note(graph, node, f"{collective} by {communicator}")
    inputs = (*node.inputs[: len(givers)], *got)
    return NodeCall(run, inputs, (), (), False, node, note, call, partial(call.make, COLLECTIVES), COLLECTIVES)


def _member(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    """What one device does of a collective, in its own order."""
    collective, communicator, _, i = node.params
    gives = i in [m for m, _ in communicator.sources(collective)]
    gets = i in [m for m, _ in communicator.targets(collective)]
    if i == 0:  # those of a collective follow one another
        links[communicator] = InLineCall(collective, communicator)
    call: InLineCall = links[communicator]

    def run(inputs: Sequence[Ref], outputs: Sequence[Ref]) -> None:
        call.take_part(i, inputs[0] if gives else None, inputs[-1] if gets else None)

    note = _note(graph, node, f"{collective} by {communicator}, in line")
    # Where one thread does all in turn, results come with the last member: nothing may look at them after the others.
    inputs = (*node.inputs, Value(node.outputs[0]))
    return NodeCall(run, inputs, (), (), False, node, note, call, partial(call.in_lane, i))


def _peer_copy(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    """A copy between devices, beside other work."""
    (source, _), (target, got) = _members(graph, node)
    call: AsynchronousCall = links[node.outputs[0]]
    lane = (source, target)

    def copy(x: Ref, out: Ref) -> None:
        copy_from_peer(source, x, target, out)

    note = _note(graph, node, f"from {source} to {target}")
    inputs = (node.inputs[0], Value(got))
    return NodeCall(copy, inputs, (), (), True, node, note, call, partial(call.make, lane), lane)


def _join(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    call: AsynchronousCall = links[node.value(0)]
    note = _note(graph, node, "waits")
    # For observers, this is where the result comes from.
    results, given = (node.value(1),), node.inputs[2:]
    return NodeCall(_nothing, given, results, (), True, node, note, call, lambda run, streams: call.join(node.device))


def _members(graph: Graph, node: Node) -> list[tuple[Device, int]]:
    """The devices of a collective or copy, and what its start on each results in."""
    given = len(node.params[1].sources(node.params[0])) if node.params else 1
    values = node.reads[given:]
    return [(graph.nodes[graph.producer_index(v)].device, v) for v in values]


def _nothing(*args: Any) -> None:
    """What starts and joins do where one thread does all in turn."""


def _note(graph: Graph, node: Node, how: str) -> Resolution:
    specs = tuple(graph.spec_of(x) for x in node.inputs)
    return Resolution(node.op.name, specs, how, ResolutionStep.CORE)


_PARTS = {
    SEND: _send, RECEIVE: _receive, START: _start, COLLECTIVE: _collective, MEMBER: _member, PEER_COPY: _peer_copy,
    JOIN: _join,
}  # fmt: skip
