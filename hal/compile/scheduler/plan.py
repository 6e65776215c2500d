"""Plan of a captured step: its kernels, their order, and the memory layout of all values, before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.capture.result import CapturedGraph, InputSource, StepInput
from polyhal.hal.compile.ir.graph import CapturedConstant, Graph
from polyhal.hal.compile.passes.pipeline import optimize
from polyhal.hal.compile.planning.program import ProgramDeclinedError
from polyhal.hal.compile.scheduler.arena import ArenaLayout, LiveInterval, plan_arena, round_up
from polyhal.hal.compile.scheduler.buffers import BufferAssignment, assign_buffers
from polyhal.hal.compile.scheduler.calls import NodeCall, select_calls
from polyhal.hal.compile.scheduler.cross_device import lower_cross_device_ops
from polyhal.hal.compile.scheduler.interleave import interleave
from polyhal.hal.compile.scheduler.schedule import deciding, schedule
from polyhal.hal.compile.scheduler.sink_results import sink_results
from polyhal.hal.layout import contiguous

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class WriteBack(NamedTuple):
    """A value that is copied to the memory of an input after the last node."""

    value: int
    target: int
    staged: bool
    """True if it is copied through temporary memory, because an earlier copy may overwrite it."""


class Owner(NamedTuple):
    """Owner of an interval of an arena: an "allocation", the `part`-th temporary of a "call", or a staged "copy"."""

    kind: str
    number: int
    part: int = 0


@dataclass(slots=True)
class Arena:
    """Memory of one device for values that are live only within a run."""

    owners: list[Owner] = field(default_factory=list)
    intervals: list[LiveInterval] = field(default_factory=list)
    layout: ArenaLayout = field(default_factory=lambda: ArenaLayout((), ()))

    def add(self, owner: Owner, interval: LiveInterval) -> None:
        """Request memory."""
        self.owners.append(owner)
        self.intervals.append(interval)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A graph after all passes, and the memory of its values and calls."""

    captured: CapturedGraph
    scheduled: Graph
    """Graph before cross-device ops are lowered."""
    graph: Graph
    """Graph that runs, with cross-device ops lowered."""
    sources: list[InputSource]
    """Sources of the graph's inputs: those of the capture, then the constants that passes computed."""
    devices: list[Any]
    """Device of every value; None for numbers."""
    buffers: BufferAssignment[Device]
    calls: list[NodeCall | None]
    write_backs: list[WriteBack]
    arenas: dict[Device, Arena]
    gradients: frozenset[int]
    """Allocations of gradients that outlive the step and share the arenas."""
    declined: dict[Device, str]
    """Devices whose backends declined a graph of the step, which therefore has no programs there, with the reasons."""
    settled: int
    """Position of the last node that may end a run before it has any effect; -1 if there is none (see `deciding`)."""

    @property
    def flag(self) -> int | None:
        """Value that is True if the run follows the recorded path; None if Python read no values."""
        check = self.captured.check
        return None if check is None else self.graph.outputs[check]

    @property
    def memories(self) -> list[int | None]:
        """Number of the program's memory for each output; None for an output that the program does not receive."""
        recorded = self.captured.graph
        return self.captured.memories or [recorded.root(v) for v in recorded.outputs]


def plan_step(
    captured: CapturedGraph,
    graph: Graph | None = None,
    *,
    separate_gradients: bool = False,
    compact: bool = False,
    declined: Mapping[Device, str] | None = None,
) -> StepPlan:
    """Plan a step; `graph` is the optimized and scheduled graph if it exists already.

    Gradients that the step only writes are allocated in the arenas, where other values use their memory first; with
    `separate_gradients` they have separate memory, like results. With `compact`, values share memory in small steps, too.
    Devices in `declined` get no programs, for the reasons given there, and neither do devices whose backends decline one.
    """
    declined = dict(declined or {})
    while True:
        try:
            return _planned(captured, graph, separate_gradients, compact, declined)
        except ProgramDeclinedError as error:
            declined[error.device] = error.reason


def _planned(
    captured: CapturedGraph,
    graph: Graph | None,
    separate_gradients: bool,
    compact: bool,
    declined: dict[Device, str],
) -> StepPlan:
    """Plan a step without programs on the devices in `declined`. Raises ProgramDeclinedError."""
    check = captured.check
    may_end = check is not None or bool(deciding(captured.graph, check))
    inside = frozenset() if separate_gradients or may_end else captured.write_only_gradients()
    scheduled = graph
    if scheduled is None:
        scheduled = interleave(sink_results(schedule(optimize(captured.graph, declined), inside, check)))
    sources = [*captured.sources, *scheduled.constants]
    graph = lower_cross_device_ops(scheduled, _devices(sources, scheduled))
    devices = _devices(sources, graph)
    settled = max(deciding(graph, check), default=-1)
    buffers = assign_buffers(graph, devices.__getitem__, settled)
    calls = select_calls(graph, buffers.aliases, _unchanged(sources, graph))
    write_backs = _write_backs(buffers)
    gradients = frozenset(
        n for n in buffers.holding_only(graph, inside) if buffers.allocations[n].device.capabilities.suballocation
    )
    arenas = _arenas(graph, devices, buffers, calls, write_backs, gradients, compact=compact)
    return StepPlan(
        captured, scheduled, graph, sources, devices, buffers, calls, write_backs, arenas, gradients, declined, settled
    )


def _devices(sources: Sequence[InputSource], graph: Graph) -> list[Any]:
    """Return the device of every value; None for numbers."""
    devices: list[Any] = [None] * len(graph.specs)
    for i, source in enumerate(sources):
        if isinstance(source, (StepInput, CapturedConstant)):
            devices[i] = source.device
    for node in graph.nodes:
        for v, device in zip(node.outputs, node.output_devices, strict=True):
            devices[v] = device
    return devices


def _unchanged(sources: Sequence[InputSource], graph: Graph) -> frozenset[int]:
    """Return the captured inputs whose memory the step does not change."""
    captured = {i: source.buffer for i, source in enumerate(sources) if isinstance(source, CapturedConstant)}
    changed = {id(captured[i]) for i in graph.updates if i in captured}
    return frozenset(i for i, buffer in captured.items() if id(buffer) not in changed)


def _write_backs(buffers: BufferAssignment[Device]) -> list[WriteBack]:
    targets = {i for _, i in buffers.copies}
    return [
        WriteBack(value, target, buffers.allocations[buffers.slice_of(value)[0]].source in targets)
        for value, target in buffers.copies
    ]


def _arenas(
    graph: Graph,
    devices: list[Any],
    buffers: BufferAssignment[Device],
    calls: list[NodeCall | None],
    write_backs: list[WriteBack],
    gradients: frozenset[int],
    *,
    compact: bool,
) -> dict[Device, Arena]:
    """Return arenas for intermediate values, `gradients`, temporaries of calls and staged copies."""
    arenas: dict[Device, Arena] = {}
    for number, allocation in enumerate(buffers.allocations):
        internal = allocation.source is None and (not allocation.output or number in gradients)
        if internal and allocation.spec.nbytes:
            interval = LiveInterval(allocation.spec.nbytes, allocation.first, allocation.last)
            arenas.setdefault(allocation.device, Arena()).add(Owner("allocation", number), interval)
    for k, call in enumerate(calls):
        for part, nbytes in enumerate(call.workspace if call is not None else ()):
            arena = arenas.setdefault(devices[graph.nodes[k].outputs[0]], Arena())
            arena.add(Owner("call", k, part), LiveInterval(nbytes, k, k, front=True))
    end = len(graph.nodes)
    for n, copy in enumerate(write_backs):
        spec = graph.tensor(copy.value)
        if copy.staged and spec.size:
            nbytes = contiguous(spec.dtype, spec.shape).nbytes
            arenas.setdefault(devices[copy.value], Arena()).add(Owner("copy", n), LiveInterval(nbytes, end, end))
    for device, arena in arenas.items():
        capabilities = device.capabilities
        intervals = arena.intervals
        if not compact and sum(round_up(i.nbytes) for i in intervals) <= capabilities.limits.distinct_memory:
            intervals = [i._replace(first=0, last=end) for i in intervals]
        arena.layout = plan_arena(intervals, capabilities.limits.max_allocation, shared=capabilities.suballocation)
    return arenas
