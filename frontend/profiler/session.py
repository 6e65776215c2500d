"""A running profile: collects calls from the executor, and turns them into records when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.ir.graph import Value
from polyhal.hal.core.execution.location import SourceLocation
from polyhal.hal.layout import Spec
from polyhal.hal.ops.call_flops import call_flops
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.protocol import TRANSFER
from polyhal.profiler.device_clock import DeviceClock
from polyhal.profiler.records import CallRecord, HostCopy, LaunchRecord, MemorySample, NamedRange, Records

if TYPE_CHECKING:
    from polyhal.hal.compile.ir.graph import Graph, Node, NodeOrigin
    from polyhal.hal.compile.scheduler.partitions import Partition
    from polyhal.hal.device import Device

Operand = Spec | int | float | bool | complex | None


class _Call(NamedTuple):
    """A call as it was seen. Texts and sums are made at the end."""

    op: OpDef | str
    device: Device
    operands: tuple[Operand, ...]
    results: tuple[Spec, ...]
    params: Sequence[Any]
    begin: int
    end: int
    launches: range | None
    location: SourceLocation
    used: int


class _Replay(NamedTuple):
    """One run of a partition of a captured step."""

    partition: Partition
    graph: Graph
    begin: int
    end: int
    launches: range | None
    location: SourceLocation
    used: int


class ProfileSession:
    """Collects calls between `start` and `stop`."""

    def __init__(self) -> None:
        self._clocks: dict[Device, DeviceClock] = {}
        self._seen: list[_Call | _Replay] = []
        self._records = Records()
        self._thread = threading.get_ident()

    def start(self, devices: Iterable[Device]) -> None:
        """Begin, with the timestamps of some devices."""
        for device in devices:
            self._clock(device)
        self._records.begin = time.perf_counter_ns()

    @property
    def devices(self) -> list[Device]:
        """The devices that were used so far, or given at the start."""
        return list(self._clocks)

    def launched(self, device: Device | None) -> int | None:
        """Return how many launches a device has made so far; None if it does not count them."""
        if device is None:
            return None
        clock = self._clocks.get(device)
        return (self._clock(device) if clock is None else clock).launched

    def _clock(self, device: Device) -> DeviceClock:
        clock = self._clocks.get(device)
        if clock is None:
            begin = time.perf_counter_ns()
            clock = self._clocks[device] = DeviceClock(device)
            if not (self._seen or self._records.copies):  # the first one compiles its kernels: not the program's time
                self._records.begin += time.perf_counter_ns() - begin
        return clock

    def called(
        self,
        op: OpDef | str,
        inputs: Sequence[Any],
        params: Sequence[Any],
        outs: Sequence[Any],
        begin: int,
        end: int,
        before: int | None,
        location: SourceLocation,
    ) -> None:
        """Note an op that was called. `before` counts the launches in front of it."""
        device = outs[0].device
        operands = tuple([x.ref.spec if hasattr(x, "ref") else x for x in inputs])
        results = tuple([x.ref.spec for x in outs])
        launches = self._since(device, before)
        self._seen.append(
            _Call(op, device, operands, results, params, begin, end, launches, location, device.pool.used)
        )

    def replayed(
        self,
        partition: Partition,
        graph: Graph,
        begin: int,
        end: int,
        before: int | None,
        location: SourceLocation,
    ) -> None:
        """Note a run of a partition of a captured step."""
        device = partition.device
        self._seen.append(
            _Replay(partition, graph, begin, end, self._since(device, before), location, device.pool.used)
        )

    def _since(self, device: Device, before: int | None) -> range | None:
        if before is None:
            return None
        now = self._clocks[device].launched
        return None if now is None else range(before, now)

    def read(self, device: Device, nbytes: int, begin: int, ready: int, end: int) -> None:
        """Note a copy to the host, which waited until `ready`."""
        self._records.copies.append(HostCopy("read", device.name, nbytes, begin, end, ready - begin))

    def uploaded(self, device: Device, nbytes: int, begin: int, end: int) -> None:
        """Note a copy to a device."""
        self._records.copies.append(HostCopy("upload", device.name, nbytes, begin, end))

    def named(self, name: str, begin: int) -> None:
        """Note a range that ends now."""
        self._records.ranges.append(NamedRange(name, max(begin, self._records.begin), time.perf_counter_ns()))

    def stop(self) -> Records:
        """Wait for the devices, and return the records."""
        records = self._records
        launches = {device.name: clock.stop() for device, clock in self._clocks.items()}
        records.end = time.perf_counter_ns()
        for seen in self._seen:
            if isinstance(seen, _Call):
                call = _op_call(seen)
                _link(call, self._made_by(seen, launches[call.device]))
            else:
                call = _replay_call(seen)
                _link_nodes(call, seen, self._made_by(seen, launches[call.device]))
            records.calls.append(call)
            records.memory.append(MemorySample(call.device, call.end, seen.used))
        records.launches = sorted((x for found in launches.values() for x in found), key=lambda x: x.begin)
        return records

    def _made_by(self, seen: _Call | _Replay, launches: Sequence[LaunchRecord]) -> list[LaunchRecord]:
        """Return the launches of a call, without launches of other threads in the same time."""
        if seen.launches is None:
            return []
        found = launches[seen.launches.start : seen.launches.stop]
        return [x for x in found if x.facts is None or x.facts.thread in (None, self._thread)]


def _op_call(seen: _Call) -> CallRecord:
    op = seen.op
    flops = 0 if isinstance(op, str) else call_flops(op, seen.operands, seen.results, seen.params)
    return CallRecord(
        op if isinstance(op, str) else op.name,
        seen.device.name,
        seen.begin,
        seen.end,
        operands=tuple(map(_text, seen.operands)),
        results=tuple(map(_text, seen.results)),
        flops=flops,
        nbytes=_bytes(seen.operands, seen.results),
        location=seen.location,
    )


def _link(call: CallRecord, launches: list[LaunchRecord]) -> None:
    """Let the launches of a call refer to it."""
    call.launches = launches
    for launch in launches:
        launch.call, launch.op, launch.location = call, call.op, call.location
    if launches:
        launches[0].flops, launches[0].nbytes = call.flops, call.nbytes


def _replay_call(seen: _Replay) -> CallRecord:
    nodes = [node for node in seen.partition.nodes if node is not None]
    location = seen.location
    if seen.partition.recorded is None and len(nodes) == 1 and nodes[0].origin is not None:
        location = _recorded_location(nodes[0].origin)
    name = "captured step" if seen.partition.recorded is not None or not nodes else nodes[0].op.name
    costs = [_node_cost(node, seen.graph) for node in nodes]
    return CallRecord(
        name,
        seen.partition.device.name,
        seen.begin,
        seen.end,
        operands=(f"{len(nodes)} ops",) if len(nodes) > 1 else (),
        flops=sum(flops for flops, _ in costs),
        nbytes=sum(nbytes for _, nbytes in costs),
        location=location,
    )


def _link_nodes(call: CallRecord, seen: _Replay, launches: Sequence[LaunchRecord]) -> None:
    """Let the launches of a captured step refer to its nodes."""
    partition = seen.partition
    call.launches = found = [x for x in launches if x.kernel != TRANSFER]
    calls = [0] * len(found) if partition.recorded is None else [x.call for x in partition.recorded.launches]
    counted: set[int] = set()
    for launch, position in zip(found, calls, strict=False):
        launch.call = call
        node = partition.nodes[position]
        if node is None:
            launch.op = "copy"
            continue
        launch.op = node.op.name
        if node.origin is not None:
            launch.location = _recorded_location(node.origin)
        if position not in counted:
            counted.add(position)
            launch.flops, launch.nbytes = _node_cost(node, seen.graph)


def _recorded_location(origin: NodeOrigin) -> SourceLocation:
    """Return the line and the module that recorded a node."""
    at = origin.location
    return SourceLocation(at.file, at.line, origin.module, at.gradient_of, at.part_of)


def _node_cost(node: Node, graph: Graph) -> tuple[int, int]:
    """Return the additions and multiplications of a node, and the bytes of its operands and results."""
    operands = tuple([_spec(graph, x) for x in node.inputs])
    results = tuple([s for s in (graph.specs[i] for i in node.outputs) if isinstance(s, Spec)])
    return call_flops(node.op, operands, results, node.params), _bytes(operands, results)


def _spec(graph: Graph, x: Any) -> Operand:
    if not isinstance(x, Value):
        return x  # type: ignore[no-any-return]
    spec = graph.specs[x.index]
    return spec if isinstance(spec, Spec) else None


def _bytes(operands: Iterable[Operand], results: Iterable[Spec]) -> int:
    return sum(x.nbytes for x in (*operands, *results) if isinstance(x, Spec))


def _text(x: Operand) -> str:
    return "none" if x is None else str(x)


__all__ = ["ProfileSession"]
