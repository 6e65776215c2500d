"""A planned step made ready to run: memory allocated, launches bound to it.

A run is a flat list of calls, or one for each device (`lanes`). Devices that support command buffers record their launches once
and submit them at each run. While launches are observed (`hal.checks`), a run makes its calls one by one instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from polyhal.hal import dispatch
from polyhal.hal.capture.replay_log import replay
from polyhal.hal.capture.result import CapturedGraph, StepInput
from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.hal.checks.bounds import is_debug
from polyhal.hal.dispatch import Array
from polyhal.hal.errors import OutOfMemoryError, out_of_memory_in
from polyhal.hal.ir.graph import CapturedConstant, Value
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.memory.buffer import Buffer
from polyhal.hal.protocol import BindingSlot
from polyhal.hal.scheduler.arena import plan_arena
from polyhal.hal.scheduler.bindings import Rebindable, ResultMemory
from polyhal.hal.scheduler.budget import plan_within
from polyhal.hal.scheduler.lanes import Lanes, LaneSpan
from polyhal.hal.scheduler.live_outs import LiveOut, copied
from polyhal.hal.scheduler.observed import observed_call, observed_copy
from polyhal.hal.scheduler.outputs import FinalCopies, OutputPlacer, records
from polyhal.hal.scheduler.partitions import BoundCall, Partition, partitioned, run_in_turn
from polyhal.hal.scheduler.placement import Placement, placement
from polyhal.hal.scheduler.plan import Arena, Owner, StepPlan
from polyhal.hal.scheduler.report import MemoryReport, report
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.device import Device


_KEPT_FREE = 1 << 20
"""Bytes of free blocks that are not worth giving back to the device."""


class Executable:
    """A captured step that can be run again and again.

    Results are new tensors each time: memory of an earlier result that is still in use is left alone.
    """

    def __init__(self, captured: CapturedGraph, budget: int | None = None) -> None:
        """Plan the step within `budget` bytes (None: no limit) and allocate its memory. Raises OutOfMemoryError."""
        self.captured = captured
        self._budget = budget
        self._separate_gradients = False
        self._is_prepared = False
        """False while it is prepared, and after that failed."""
        self.blocks: dict[Device, list[Buffer]] = {}
        """Memory that is kept from run to run."""
        self._prepare()

    def _prepare(self) -> None:
        """Plan, allocate and bind. With `_separate_gradients`, gradients of earlier runs keep their values."""
        self._is_prepared = False
        try:
            self._prepare_anew()
        except OutOfMemoryError as error:
            self.blocks.clear()
            raise out_of_memory_in("captured step", error) from error
        self._is_prepared = True

    def _prepare_anew(self) -> None:
        self._checks_indices = is_debug()
        self.plan: StepPlan = plan_within(self.captured, self._budget, separate_gradients=self._separate_gradients)
        self.captured.release_gradients()
        self.graph = self.plan.graph
        self.calls = self.plan.calls
        self._refs: list[Ref | None] = [None] * len(self.graph.specs)
        """Where each value lies; None for numbers."""
        self._bindings: dict[int, Rebindable] = {}
        """The rebindable memory of each value that lies in an argument or a result."""
        self._arguments: list[tuple[int, Rebindable]] = []
        """Positions among the arguments of a run, and the memory that is bound to them."""
        self.results: list[ResultMemory] = []
        self.blocks = {}
        self._places: dict[Owner, tuple[Any, int]] = {}
        """Handle and offset in bytes of everything that lies in the blocks."""
        self._plain_copies: list[tuple[Device, Ref, Ref]] = []
        """The copies at the end of a run."""
        self._observed: list[Callable[[], None]] = []
        """The calls of a run one by one, within their observers; made when they are needed."""
        self._known_live_outs: object = None
        self._live_outs: list[LiveOut] = []
        """What `_known_live_outs` refers to."""
        self._allocate_blocks()
        self._bind_inputs()
        self._bind_values()
        self._moved: list[BindingSlot] = []
        """Memory whose address changed since the last run that reached the device."""
        self.partitions: list[Partition] = partitioned(self._bound_calls() + self._final_copies(), self._moved)
        """What a run does, in order."""
        self._actions = [p.run for p in self.partitions]
        self.devices = tuple({p.device: None for p in self.partitions})
        """The devices on which the step has work, in the order of first use."""
        several = len(self.devices) > 1 or any(p.link is not None for p in self.partitions)
        self.lanes = Lanes(self.partitions) if several else None
        self._forks = dispatch.structure.forks

    # --- preparing --------------------------------------------------------------------------------------------------

    def _allocate_blocks(self) -> None:
        for device, arena in self.plan.arenas.items():
            # What an eager run before the recording needed is free now, and no replay needs it.
            if device.pool.reserved - device.pool.used > _KEPT_FREE:
                device.pool.drain()
            buffers = self.blocks[device] = _take_blocks(device, arena)
            for owner, (block, offset) in zip(arena.owners, arena.layout.places, strict=True):
                self._places[owner] = (buffers[block].handle, offset)

    def _bind_inputs(self) -> None:
        for i, source in enumerate(self.plan.sources):
            if isinstance(source, CapturedConstant):
                self._refs[i] = source.ref
            elif isinstance(source, StepInput):
                binding = Rebindable()
                self._arguments.append((source.position, binding))
                self._follow(i, binding, 0)

    def _follow(self, value: int, binding: Rebindable, offset: int) -> None:
        """Let a value lie in rebindable memory, `offset` elements from its start."""
        self._bindings[value] = binding
        self._refs[value] = binding.reference(self.graph.tensor(value), offset)

    def _bind_values(self) -> None:
        """Make references for every value that a node computes."""
        buffers = self.plan.buffers
        results: dict[int, ResultMemory] = {}
        for number, allocation in enumerate(buffers.allocations):
            if allocation.output and allocation.source is None:
                results[number] = ResultMemory(allocation.spec, allocation.device, self._home(number))
        self.results += results.values()
        self._result_of = results
        for value in range(self.graph.inputs, len(self.graph.specs)):
            spec = self.graph.tensor(value)
            number, moved = buffers.slice_of(value)
            source = buffers.allocations[number].source
            if source in self._bindings:
                self._follow(value, self._bindings[source], moved)
            elif source is not None:
                base = self._ref(source)
                self._refs[value] = Ref(base.handle, spec, base.offset + moved)
            elif number in results:
                self._follow(value, results[number].binding, moved)
            else:
                handle, offset = self._places.get(Owner("allocation", number), (None, 0))
                self._refs[value] = Ref(handle, spec, offset // spec.dtype.itemsize + moved)

    def _home(self, number: int) -> tuple[Buffer, int] | None:
        """The block, and the offset in it, of a result that lies in an arena; None for other results."""
        place = self._places.get(Owner("allocation", number))
        if place is None:
            return None
        allocation = self.plan.buffers.allocations[number]
        block = next(b for b in self.blocks[allocation.device] if b.handle is place[0])
        return block, place[1] // allocation.spec.dtype.itemsize

    def _ref(self, value: int) -> Ref:
        """Where a tensor lies. Raises TypeError for a number."""
        ref = self._refs[value]
        if ref is None:
            raise TypeError(f"%{value} is a number; expected a tensor")
        return ref

    def _bound_calls(self) -> list[BoundCall]:
        bound: list[BoundCall] = []
        for k, call in enumerate(self.calls):
            if call is None:
                continue
            device = call.node.device
            workspace = [self._places[Owner("call", k, part)][0] for part in range(len(call.workspace))]
            scalars = any(isinstance(self._argument(x), RuntimeScalar) for x in call.inputs)
            recorded = records(device) and call.resolution.recordable and (call.direct or not scalars)
            inputs = [self._argument(x, recorded) for x in call.inputs]
            outputs = [self._argument(Value(i), recorded) for i in call.outputs]
            run = call.bound(inputs, outputs, workspace, runtime_scalars=scalars and not recorded)
            in_lane = None if call.in_lane is None else partial(call.in_lane, run)
            bound.append(BoundCall(device, run, recorded, call.node, in_lane, call.lane, call.link))
        return bound

    def _observed_calls(self) -> list[Callable[[], None]]:
        """All calls of a run for observers, none of them in a command buffer."""
        runs: list[Callable[[], None]] = []
        for k, call in enumerate(self.calls):
            if call is not None:
                workspace = [self._places[Owner("call", k, part)][0] for part in range(len(call.workspace))]
                inputs = [self._argument(x) for x in call.inputs]
                runs.append(observed_call(call, inputs, [self._ref(i) for i in call.outputs], workspace))
        return runs + [observed_copy(*copied) for copied in self._plain_copies]

    def _argument(self, x: Any, recorded: bool = False) -> Any:
        """An operand as a launch takes it: a reference, a number, None, or a runtime scalar.

        Recorded launches get references to the slots of rebindable memory.
        """
        if not isinstance(x, Value):
            return x
        if x.index < self.graph.inputs:
            source = self.plan.sources[x.index]
            if isinstance(source, RuntimeScalar):
                return source
        ref = self._refs[x.index]
        binding = self._bindings.get(x.index)
        return binding.recorded(ref) if recorded and binding is not None and ref is not None else ref

    def _final_copies(self) -> list[BoundCall]:
        """Copies after the last step: results that need memory of their own, then the plan's write-backs."""
        placer = OutputPlacer(self.plan, self._result_of, self._ref, self._argument)
        self._outputs = placer.run()
        self.results += placer.made
        copies, late = placer.copies, FinalCopies()
        for n, (value, i, staged) in enumerate(self.plan.write_backs):
            device = self.plan.devices[value]
            source, target = self._ref(value), self._ref(i)
            source_slot, target_slot = (self._argument(Value(v), records(device)) for v in (value, i))
            if not target.size:
                continue
            if staged:
                spec = contiguous(source.dtype, source.shape)
                handle, offset = self._places[Owner("copy", n)]
                between = Ref(handle, spec, offset // spec.dtype.itemsize)
                copies.add(device, source, between, (source_slot, between))
                source = source_slot = between
            late.add(device, source, target, (source_slot, target_slot))
        self._plain_copies += copies.plain + late.plain
        return copies.calls + late.calls

    def memory_report(self) -> MemoryReport:
        """The memory that runs need, by kind."""

        def allocated(device: Device) -> int:
            results = [r.buffer.nbytes for r in self.results if r.device is device and r.buffer is not None]
            return sum(results) + sum(b.nbytes for b in self.blocks.get(device, ()))

        return report(self.plan, allocated)

    def placement(self) -> Placement:
        """The device of each node, what crosses between devices, and what the lanes did in the runs so far."""
        return placement(self.graph, [] if self.lanes is None else self.lanes.all)

    def record_lanes(self) -> AbstractContextManager[list[LaneSpan]]:
        """Note in a list what each lane does in the runs inside the block; nothing on one device."""
        return nullcontext([]) if self.lanes is None else self.lanes.recording()

    def release(self) -> None:
        """Give back the memory of runs. The next run takes memory anew."""
        self._is_prepared = False
        self.blocks.clear()

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, arguments: Sequence[Array], count: int | None = None) -> list[Any]:
        """Run once with arrays for the graph's arguments, and rebind the live-outs of the step to their new values.

        Returns new arrays for the first `count` outputs, for all by default.
        """
        if not self._is_prepared or (settings.observers and is_debug() and not self._checks_indices):
            self._prepare()  # ops that read by index are kept whole from now on
        if self._forks != dispatch.structure.forks:
            self._check_devices()
        if self._known_live_outs is not self.captured.live_outs:
            self._find_live_outs()
        for position, binding in self._arguments:
            ref = arguments[position].ref
            if binding.bind(ref.handle, ref.offset):
                self._moved.append(binding.slot)
                if self._lies_in_blocks(ref.handle):
                    return self._run_separately(arguments, count)
        for result in self.results:
            if not result.is_free():
                if result.home is not None and result.buffer is not None:
                    return self._run_separately(arguments, count)
                try:
                    if result.renew():
                        self._moved.append(result.binding.slot)
                except OutOfMemoryError as error:
                    raise out_of_memory_in("captured step", error) from error
        replay(self.captured.replay_actions, self._run_or_time)
        self._moved.clear()
        for buffer in self.captured.mutated_buffers:
            buffer.version += 1
        for position in self.captured.mutated_inputs:
            arguments[position].buffer.version += 1
        for live_out in self._live_outs:
            tensor = live_out.tensor
            if tensor.buffer is not live_out.result.buffer or tensor.ref is not live_out.bound:
                live_out.rebind()
        wrap = dispatch.frontend.wrap
        return [wrap(device, result.buffer, copied(ref)) for ref, device, result in self._outputs[:count]]  # type: ignore[arg-type]

    def _run_or_time(self) -> None:
        if dispatch.thread.lane_timer is not None and dispatch.thread.timer is None and not settings.observers:
            dispatch.thread.lane_timer.run(self)
        else:
            self.run_once()

    def run_once(self) -> None:
        """Make all calls of a run: those of each device on a thread of its own, unless they are timed or observed."""
        lanes = self.lanes
        if lanes is not None and dispatch.thread.timer is None and not settings.observers:
            lanes.run()
            return
        try:
            self._run_here()
        finally:
            if lanes is not None:
                lanes.clear()
        if lanes is None:
            for device in self.devices:
                device.flush()

    def _run_here(self) -> None:
        """Make all calls on this thread."""
        if dispatch.thread.timer is not None:
            dispatch.thread.timer.run(self.partitions)
        elif settings.observers:
            self._observed = self._observed or self._observed_calls()
            for action in self._observed:
                action()
        else:
            run_in_turn(self._actions, self.partitions)

    def _check_devices(self) -> None:
        """Submit nothing to a driver of the process that this one is a forked child of. Raises DeviceLostError."""
        for device in self.devices:
            device.synchronize()
        self._forks = dispatch.structure.forks

    def _lies_in_blocks(self, handle: Any) -> bool:
        """Whether an argument may be a gradient of an earlier run, in memory that a run uses for other values first."""
        return bool(self.plan.gradients) and any(handle is b.handle for held in self.blocks.values() for b in held)

    def _run_separately(self, arguments: Sequence[Array], count: int | None) -> list[Any]:
        """Run although the program still holds an old gradient: from now on gradients get memory of their own."""
        self._separate_gradients = True
        self._prepare()
        return self.run(arguments, count)

    def _find_live_outs(self) -> None:
        """Note the tensors that outlive the step, and the results in which they lie."""
        self._known_live_outs = self.captured.live_outs
        self._live_outs = [LiveOut(t, *self._outputs[output]) for t, output in self.captured.live_outs]
        for result in self.results:
            result.live_outs = [x.tensor for x in self._live_outs if x.result is result]


def _take_blocks(device: Device, arena: Arena) -> list[Buffer]:
    """The blocks of an arena; in pieces half as large if the device's free memory is not in one, down to a single tensor.

    Raises OutOfMemoryError.
    """
    largest = max((i.nbytes for i in arena.intervals), default=0)
    while True:
        try:
            return [device.pool.take_exactly(n) for n in arena.layout.blocks]
        except OutOfMemoryError as error:
            refused = error.with_traceback(None)  # the frames hold blocks
        limit = max(arena.layout.blocks) // 2
        if limit < largest or not device.capabilities.suballocation or arena.layout.nbytes > device.pool.available:
            raise refused
        del refused  # its causes hold this frame, and so the recording
        arena.layout = plan_arena(arena.intervals, limit)


__all__ = ["Executable", "Partition"]
