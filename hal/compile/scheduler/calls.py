"""Kernel selection for the nodes of a graph: the calls of a replay before memory is bound."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Node, Value
from polyhal.hal.compile.ir.program import PROGRAM
from polyhal.hal.compile.planning.host_calls import host_call_run
from polyhal.hal.compile.planning.program import compile_program, declined_op
from polyhal.hal.compile.planning.resolution import Resolution, ResolutionStep
from polyhal.hal.compile.scheduler.announced_kernels import announce
from polyhal.hal.compile.scheduler.async_ops import AsyncOp
from polyhal.hal.compile.scheduler.cross_device import COLLECTIVE, ENQUEUE, JOIN, PEER_COPY, RECEIVE, SEND, START
from polyhal.hal.compile.scheduler.enqueue_collectives import EnqueuedCollective
from polyhal.hal.core.execution.runtime_scalars import current_values
from polyhal.hal.core.memory.peer_copies import copy_from_peer
from polyhal.hal.core.settings.state import settings
from polyhal.hal.core.transfers.relay import HostRelay
from polyhal.hal.core.transfers.worker_link import COLLECTIVES, WorkerKey, WorkerLink
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.ops.layout.host_call import HOST_CALL, name_of
from polyhal.hal.protocol import Feature, Handle

if TYPE_CHECKING:
    from polyhal.hal.core.memory.streams import Stream
    from polyhal.hal.device import Device


class NodeCall(NamedTuple):
    """Call of a node: a function whose arguments are values of the graph and literals."""

    run: Callable[..., None]
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...]
    workspace: tuple[int, ...]
    """Bytes of each temporary; their handles follow the outputs."""
    direct: bool
    """True if `run` takes all arguments as a flat list, like a launch, rather than as (inputs, outputs)."""
    node: Node
    resolution: Resolution
    link: WorkerLink | None = None
    """Link to other workers; None for calls on one device."""
    on_worker: Callable[[Callable[[], None], Mapping[Device, Stream]], None] | None = None
    """Action of a worker thread, given the bound call and streams for overlapped work; None: make the call."""
    worker: WorkerKey = None
    """Key of a communication worker; None for the worker of the node's device."""

    def bound(
        self, inputs: list[Any], outputs: list[Any], workspace: list[Any], *, runtime_scalars: bool
    ) -> Callable[[], None]:
        """Bind all arguments. With `runtime_scalars`, scalars among the inputs are read at each run."""
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


def select_calls(
    graph: Graph, aliases: Sequence[tuple[int, ...]], captured: Collection[int] = ()
) -> list[NodeCall | None]:
    """Return the call of each node, None for views; `aliases` has the operand that each output overwrites.

    `captured` are the inputs that stay where they are and that the step does not change. Raises ProgramDeclinedError if a
    backend declines the graph of a program.
    """
    links: dict[Any, Any] = {}
    announce(
        graph,
        [n for n, a in zip(graph.nodes, aliases, strict=True) if a and n.op not in _PARTS and n.op is not PROGRAM],
    )
    return [
        _PARTS[n.op](graph, n, links) if n.op in _PARTS else _select(graph, n, a, captured)
        for n, a in zip(graph.nodes, aliases, strict=True)
    ]


def _select(graph: Graph, node: Node, aliases: tuple[int, ...], captured: Collection[int]) -> NodeCall | None:
    """Resolve a node. `aliases` has the operand that each output overwrites; empty if the node needs no call."""
    if not aliases:
        return None
    if node.op is PROGRAM:
        program, note = compile_program(graph, node, aliases, captured)
        return NodeCall(program, node.inputs, node.outputs, program.workspace, True, node, note)
    specs = tuple(graph.spec_of(x) for x in node.inputs)
    overwritten = aliases if any(a >= 0 for a in aliases) else ()
    with settings.restored(node.place.settings):
        planner = node.device.planner
        run, launch, note = planner.resolve(node.op, specs, graph.output_specs(node), node.bound, overwritten)
        if node.device.features & Feature.GRAPHS and (reason := declined_op(node.device, graph, node)):
            note.skipped.insert(0, f"program: {reason}")
    if launch is not None:
        return NodeCall(launch, node.inputs, node.outputs, launch.workspace, True, node, note)
    return NodeCall(run, node.inputs, node.outputs, (), False, node, note)


def _send(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    """Return a call that reads a value into host staging memory, through a contiguous copy if it is strided."""
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
    op = next(n for n in graph.users(node.outputs[0]) if n.op in (COLLECTIVE, PEER_COPY))
    (key,) = op.outputs
    if key not in links:
        links[key] = AsyncOp([d for d, _ in _participants(graph, op)])
    call: AsyncOp = links[key]
    note = _note(graph, node, f"of {op.params[0]}" if op.params else "")
    return NodeCall(_no_op, node.inputs, (), (), True, node, note, call, lambda run, streams: call.start(node.device))


def _collective(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    """Return the call of an overlapped collective on the collectives' worker."""
    collective, communicator, _ = node.params
    count = len(communicator.devices)
    senders = [i for i, _ in communicator.sources(collective)]
    receivers = [i for i, _ in communicator.targets(collective)]
    results = dict(_participants(graph, node))
    call: AsyncOp = links[node.outputs[0]]

    def run(inputs: Sequence[Ref], outputs: Sequence[Ref]) -> None:
        sources: list[Ref | None] = [None] * count
        targets: list[Ref | None] = [None] * count
        for i, x in zip(senders, inputs, strict=False):
            sources[i] = x
        for i, x in zip(receivers, inputs[len(senders) :], strict=True):
            targets[i] = x
        communicator.run(collective, sources, targets)

    received = tuple(Value(results[communicator.devices[i]]) for i in receivers)
    note = _note(graph, node, f"{collective} by {communicator}")
    inputs = (*node.inputs[: len(senders)], *received)
    return NodeCall(run, inputs, (), (), False, node, note, call, partial(call.execute, COLLECTIVES), COLLECTIVES)


def _enqueue(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    """Return the call that enqueues one device's part of a collective on its compute stream."""
    collective, communicator, _, i = node.params
    sends = i in [m for m, _ in communicator.sources(collective)]
    receives = i in [m for m, _ in communicator.targets(collective)]
    if i == 0:  # the enqueue nodes of a collective are adjacent
        links[communicator] = EnqueuedCollective(collective, communicator)
    call: EnqueuedCollective = links[communicator]

    def run(inputs: Sequence[Ref], outputs: Sequence[Ref]) -> None:
        call.take_part(i, inputs[0] if sends else None, inputs[-1] if receives else None)

    note = _note(graph, node, f"{collective} by {communicator}, on the compute stream")

    def record(*refs: Ref) -> None:
        call.record(i, refs[0] if sends else None, refs[-1] if receives else None)

    # The result is passed as an input so that observers do not check it: on a single thread the last participant completes it.
    inputs = (*node.inputs, Value(node.outputs[0]))
    if communicator.recordable:
        note.recordable = True
        return NodeCall(record, inputs, (), (), True, node, note, call, partial(call.on_worker, i))
    return NodeCall(run, inputs, (), (), False, node, note, call, partial(call.on_worker, i))


def _peer_copy(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    """Return the call of a peer copy, which overlaps with other work."""
    (source, _), (target, received) = _participants(graph, node)
    call: AsyncOp = links[node.outputs[0]]
    worker = (source, target)

    def copy(x: Ref, out: Ref) -> None:
        copy_from_peer(source, x, target, out)

    note = _note(graph, node, f"from {source} to {target}")
    inputs = (node.inputs[0], Value(received))
    return NodeCall(copy, inputs, (), (), True, node, note, call, partial(call.execute, worker), worker)


def _join(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    call: AsyncOp = links[node.value(0)]
    note = _note(graph, node, "waits")
    # Observers check the result of the collective as an output of the join.
    results, sent = (node.value(1),), node.inputs[2:]
    return NodeCall(_no_op, sent, results, (), True, node, note, call, lambda run, streams: call.join(node.device))


def _participants(graph: Graph, node: Node) -> list[tuple[Device, int]]:
    """Return the devices of a collective or copy, each with the result of its start node."""
    sent = len(node.params[1].sources(node.params[0])) if node.params else 1
    values = node.reads[sent:]
    return [(graph.nodes[graph.producer_index(v)].device, v) for v in values]


def _no_op(*args: Any) -> None:
    """No-op: a single thread that runs all nodes in order needs no starts and joins."""


def _host_call(graph: Graph, node: Node, links: dict[Any, Any]) -> NodeCall:
    """Return a call of a Python function, for which the host waits."""
    function, results = node.params
    note = _note(graph, node, f"{name_of(function)} on the host", ResolutionStep.HOST)
    return NodeCall(host_call_run(node.device, function, results), node.inputs, node.outputs, (), False, node, note)


def _note(graph: Graph, node: Node, how: str, step: ResolutionStep = ResolutionStep.CORE) -> Resolution:
    specs = tuple(graph.spec_of(x) for x in node.inputs)
    return Resolution(node.op.name, specs, how, step)


_PARTS = {
    SEND: _send,
    RECEIVE: _receive,
    START: _start,
    COLLECTIVE: _collective,
    ENQUEUE: _enqueue,
    PEER_COPY: _peer_copy,
    JOIN: _join,
    HOST_CALL: _host_call,
}
