"""Executable of a captured step: its plan with allocated memory and bound launches.

A run is a flat list of calls, or one list per device (`workers`). Devices that support command buffers record their launches
once and submit them in each run. While launches are observed (`hal.system.checks`), a run makes its calls one by one instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.capture.replay_log import replay
from polyhal.hal.compile.capture.result import CapturedGraph, StepInput
from polyhal.hal.compile.ir.graph import CapturedConstant, Value
from polyhal.hal.compile.scheduler.arena_blocks import allocate_blocks
from polyhal.hal.compile.scheduler.bindings import Rebindable, ResultMemory
from polyhal.hal.compile.scheduler.budget import plan_within
from polyhal.hal.compile.scheduler.device_workers import DeviceWorkers, WorkerSpan
from polyhal.hal.compile.scheduler.live_outs import LiveOut
from polyhal.hal.compile.scheduler.observed import observed_call
from polyhal.hal.compile.scheduler.outputs import FinalCopies, OutputPlacer, records
from polyhal.hal.compile.scheduler.partitions import BoundCall, Partition, partitioned, run_in_turn
from polyhal.hal.compile.scheduler.placement import Placement, placement
from polyhal.hal.compile.scheduler.plan import Owner, StepPlan
from polyhal.hal.compile.scheduler.report import MemoryReport, report
from polyhal.hal.compile.scheduler.value_check import early_results, first_visible_write, require_recorded_path
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import Array, PartitionTimer
from polyhal.hal.core.dispatch.bounds import is_debug
from polyhal.hal.core.dispatch.observer import run_observed_copy
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import OutOfMemoryError, out_of_memory_in
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import BindingSlot, SupportsFlush

if TYPE_CHECKING:
    from polyhal.hal.device import Device


_STRUCTURE, _THREAD, _FRONTEND = dispatch.structure, dispatch.thread, dispatch.frontend


class Executable:
    """A captured step that can be run repeatedly.

    Each run returns new tensors. A result reuses memory of its previous value only if the program no longer references it.
    """

    def __init__(self, captured: CapturedGraph, budget: int | None = None) -> None:
        """Plan the step within `budget` bytes (None: no limit) and allocate its memory. Raises OutOfMemoryError."""
        self.captured = captured
        self._budget = budget
        self._separate_gradients = False
        self._is_prepared = False
        """False during preparation, after a failed one and after `release`."""
        self.partitions: list[Partition] = []
        """Partitions of a run, in order: another list after each preparation."""
        self.blocks: dict[Device, list[Buffer]] = {}
        """Arena blocks of each device, kept from run to run."""
        self._prepare()

    def _prepare(self) -> None:
        """Plan, allocate and bind. With `_separate_gradients`, gradients of earlier runs keep their values."""
        self._is_prepared, self.partitions = False, []
        try:
            self._plan_and_bind()
        except OutOfMemoryError as error:
            self.blocks.clear()
            raise out_of_memory_in("captured step", error) from error
        self._is_prepared = True

    def _plan_and_bind(self) -> None:
        self._checks_indices = is_debug()
        self.plan: StepPlan = plan_within(self.captured, self._budget, separate_gradients=self._separate_gradients)
        self._check_position = None if self.plan.flag is None else first_visible_write(self.plan)
        """Position of the first call before which the values are checked that Python read; None if it read none."""
        self.captured.release_gradients()
        self.graph = self.plan.graph
        self.calls = self.plan.calls
        self._refs: list[Ref | None] = [None] * len(self.graph.specs)
        """Memory reference of each value; None for numbers."""
        self._bindings: dict[int, Rebindable] = {}
        """Rebindable memory of each value that is stored in an argument or a result."""
        self.arguments: list[tuple[int, Rebindable]] = []
        """Position of each argument of a run, and its rebindable memory."""
        self.results: list[ResultMemory] = []
        self.blocks.clear()
        self._plain_copies: list[tuple[Device, Ref, Ref]] = []
        """Copies at the end of a run, as (device, source, target), for observers."""
        self._observed: list[Callable[[], None]] = []
        """Calls of an observed run, without command buffers; built on first use."""
        self._known_live_outs: object = None
        """The captured list of live-outs that `_live_outs` was built from."""
        self._live_outs: list[LiveOut] = []
        self._locations: dict[Owner, tuple[Any, int]] = allocate_blocks(self.plan.arenas, self.blocks)
        """Handle and offset in bytes of everything that is allocated in the blocks."""
        self._bind_inputs()
        self._bind_values()
        self.moved: list[BindingSlot] = []
        """Slots of memory whose address changed since the last submitted run."""
        self.partitions = partitioned(self._bound_calls() + self._final_copies(), self.moved)
        self._actions = [p.run for p in self.partitions]
        self.devices = tuple({p.device: None for p in self.partitions})
        """Devices on which the step has work, in the order of first use."""
        self._flushed = [d for d in self.devices if isinstance(d.backend, SupportsFlush)]
        several = len(self.devices) > 1 or any(p.link is not None for p in self.partitions)
        self.workers = DeviceWorkers(self.partitions) if several else None
        self.forks = _STRUCTURE.forks

    # --- preparing --------------------------------------------------------------------------------------------------

    def _bind_inputs(self) -> None:
        for i, source in enumerate(self.plan.sources):
            if isinstance(source, CapturedConstant):
                self._refs[i] = source.ref
            elif isinstance(source, StepInput):
                binding = Rebindable()
                self.arguments.append((source.position, binding))
                self._follow(i, binding, 0)

    def _follow(self, value: int, binding: Rebindable, offset: int) -> None:
        """Bind a value to rebindable memory, `offset` elements from its start."""
        self._bindings[value] = binding
        self._refs[value] = binding.reference(self.graph.tensor(value), offset)

    def _bind_values(self) -> None:
        """Create the reference of every value that a node computes."""
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
                handle, offset = self._locations.get(Owner("allocation", number), (None, 0))
                self._refs[value] = Ref(handle, spec, offset // spec.dtype.itemsize + moved)

    def _home(self, number: int) -> tuple[Buffer, int] | None:
        """Return the block of a result that is allocated in an arena, and the offset in elements; None for other results."""
        location = self._locations.get(Owner("allocation", number))
        if location is None:
            return None
        allocation = self.plan.buffers.allocations[number]
        block = next(b for b in self.blocks[allocation.device] if b.handle is location[0])
        return block, location[1] // allocation.spec.dtype.itemsize

    def _ref(self, value: int) -> Ref:
        """Return the memory reference of a tensor. Raises TypeError for a number."""
        ref = self._refs[value]
        if ref is None:
            raise TypeError(f"%{value} is a number; expected a tensor")
        return ref

    def _bound_calls(self) -> list[BoundCall]:
        bound: list[BoundCall] = []
        for k, call in enumerate(self.calls):
            if k == self._check_position:
                bound.append(self._check())
            if call is None:
                continue
            device = call.node.device
            workspace = [self._locations[Owner("call", k, part)][0] for part in range(len(call.workspace))]
            scalars = any(isinstance(self._argument(x), RuntimeScalar) for x in call.inputs)
            recorded = records(device) and call.resolution.recordable and (call.direct or not scalars)
            inputs = [self._argument(x, recorded) for x in call.inputs]
            outputs = [self._argument(Value(i), recorded) for i in call.outputs]
            run = call.bound(inputs, outputs, workspace, runtime_scalars=scalars and not recorded)
            on_worker = None if call.on_worker is None else partial(call.on_worker, run)
            bound.append(BoundCall(device, run, recorded, call.node, on_worker, call.worker, call.link))
        return bound if self._check_position != len(self.calls) else [*bound, self._check()]

    def _check(self) -> BoundCall:
        """Return the call that raises PathChangedError if the run must not follow the recorded path."""
        flag: Any = self.plan.flag
        device = self.plan.devices[flag]
        return BoundCall(device, partial(require_recorded_path, device, self._ref(flag)), recorded=False)

    def _observed_calls(self) -> list[Callable[[], None]]:
        """Return all calls of a run with observers, without command buffers."""
        runs: list[Callable[[], None]] = []
        for k, call in enumerate([*self.calls, None]):
            if k == self._check_position:
                runs.append(self._check().run)
            if call is not None:
                workspace = [self._locations[Owner("call", k, part)][0] for part in range(len(call.workspace))]
                inputs = [self._argument(x) for x in call.inputs]
                runs.append(observed_call(call, inputs, [self._ref(i) for i in call.outputs], workspace))
        return runs + [partial(run_observed_copy, *copy) for copy in self._plain_copies]

    def _argument(self, x: Any, recorded: bool = False) -> Any:
        """Return an operand in the form that a launch takes: a reference, a number, None, or a runtime scalar.

        Recorded launches take references to the slots of rebindable memory.
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
        """Return the copies after the last node: results that need separate memory, then the plan's write-backs."""
        placer = OutputPlacer(self.plan, self._result_of, self._ref, self._argument)
        self.outputs = placer.run()
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
                handle, offset = self._locations[Owner("copy", n)]
                staging = Ref(handle, spec, offset // spec.dtype.itemsize)
                copies.add(device, source, staging, (source_slot, staging))
                source = source_slot = staging
            late.add(device, source, target, (source_slot, target_slot))
        self._plain_copies += copies.plain + late.plain
        return copies.calls + late.calls

    @property
    def checks_values(self) -> bool:
        """True if a run may raise PathChangedError."""
        return self._check_position is not None

    def memory_report(self) -> MemoryReport:
        """Report the memory of a run by kind."""

        def allocated(device: Device) -> int:
            results = [r.buffer.nbytes for r in self.results if r.device is device and r.buffer is not None]
            return sum(results) + sum(b.nbytes for b in self.blocks.get(device, ()))

        return report(self.plan, allocated)

    def placement(self) -> Placement:
        """Report the device of each node, the traffic between devices, and the times of the workers in the runs so far."""
        return placement(self.graph, [] if self.workers is None else self.workers.all)

    def record_workers(self) -> AbstractContextManager[list[WorkerSpan]]:
        """Record the spans of all workers in the runs inside the block; none for a step on one device."""
        return nullcontext([]) if self.workers is None else self.workers.recording()

    def release(self) -> None:
        """Free the memory of runs. The next run plans and allocates again."""
        self._is_prepared, self.partitions = False, []
        self.blocks.clear()

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, arguments: Sequence[Array], count: int | None = None) -> list[Any]:
        """Run once with arrays for the graph's arguments, and rebind the live-outs of the step to their new values.

        Returns new arrays for the first `count` outputs, for all by default. Raises PathChangedError before any effect if a
        value that Python read is not as recorded.
        """
        captured = self.captured
        if (
            not self._is_prepared
            or settings.is_observed
            or self.forks != _STRUCTURE.forks
            or self._known_live_outs is not captured.live_outs
        ):
            self._update()
        for position, binding in self.arguments:
            ref, slot = arguments[position].ref, binding.slot
            if (slot.handle is not ref.handle or slot.offset != ref.offset) and binding.bind(ref.handle, ref.offset):
                self.moved.append(binding.slot)
                if self._is_in_blocks(ref.handle):
                    return self._run_separately(arguments, count)
        for result in self.results:
            if not result.is_free():
                if result.home is not None and result.buffer is not None:
                    return self._run_separately(arguments, count)
                if result.renew():
                    self.moved.append(result.binding.slot)
        thread = _THREAD
        is_plain = thread.timer is None and thread.worker_timer is None and not settings.is_observed
        work = self._submit if is_plain and self.workers is None else self._run_or_time
        if captured.replay_actions:
            replay(captured.replay_actions, work)
        else:
            work()
        if self.moved:
            self.moved.clear()
        for buffer in captured.mutated_buffers:
            buffer.version += 1
        for position in captured.mutated_inputs:
            arguments[position].buffer.version += 1
        for live_out in self._live_outs:
            tensor = live_out.tensor
            if tensor.buffer is not live_out.result.buffer or tensor.ref is not live_out.bound:
                live_out.rebind()
        wrap = _FRONTEND.wrap
        made: list[Any] = []
        for x in self.outputs if count is None else self.outputs[:count]:
            made.append(wrap(x.device, x.memory.buffer, x.fixed()))  # type: ignore[arg-type]
        return made

    def _update(self) -> None:
        """Prepare again after `release`, for other observers or other live-outs; check the devices after a fork."""
        if not self._is_prepared or (settings.is_observed and is_debug() and not self._checks_indices):
            self._prepare()  # the new plan keeps ops that read by index unfused, for the bounds check
        if self.forks != _STRUCTURE.forks:
            for device in self.devices:
                device.synchronize()  # raises DeviceLostError if the driver belongs to the parent of a forked process
            self.forks = _STRUCTURE.forks
        if self._known_live_outs is not self.captured.live_outs:
            self._find_live_outs()

    def _submit(self) -> None:
        """Make all calls of a step without workers, on this thread."""
        run_in_turn(self._actions, self.partitions)
        self._flush()

    def _flush(self) -> None:
        for device in self._flushed:
            device.flush()

    def _run_or_time(self) -> None:
        thread = _THREAD
        if thread.worker_timer is not None and thread.timer is None and not settings.is_observed:
            thread.worker_timer.run(self)
        else:
            self.run_once()

    def run_once(self) -> None:
        """Make all calls of a run, with one worker thread per device unless the run is timed or observed."""
        workers, timer = self.workers, _THREAD.timer
        is_plain = timer is None and not settings.is_observed
        if workers is None and is_plain:
            self._submit()
            return
        if workers is not None and is_plain and self._check_position is None and self.plan.settled < 0:
            workers.run()
            return
        try:
            if is_plain:
                run_in_turn(self._actions, self.partitions)
            else:
                self._run_apart(timer)
        finally:
            if workers is not None:
                workers.clear()
        if workers is None:
            self._flush()

    def _run_apart(self, timer: PartitionTimer | None) -> None:
        """Make all calls on this thread, with a timer or with observers."""
        if timer is not None:
            timer.run(self.partitions, self.graph)
            return
        self._observed = self._observed or self._observed_calls()
        for action in self._observed:
            action()

    def _is_in_blocks(self, handle: Any) -> bool:
        """Return whether an argument may be a gradient of an earlier run in an arena block: a run would overwrite it."""
        return bool(self.plan.gradients) and any(handle is b.handle for held in self.blocks.values() for b in held)

    def _run_separately(self, arguments: Sequence[Array], count: int | None) -> list[Any]:
        """Replan with separate memory for gradients, because the program still references an old one, and run."""
        self._separate_gradients = True
        self._prepare()
        return self.run(arguments, count)

    def _find_live_outs(self) -> None:
        """Collect the tensors that outlive the step, with the result memory of each."""
        self._known_live_outs = self.captured.live_outs
        self._live_outs = [LiveOut(t, self.outputs[output]) for t, output in self.captured.live_outs]
        separate = {id(self._result_of.get(n)) for n in early_results(self.plan)}
        for result in self.results:
            shared = id(result) not in separate
            result.live_outs = [x.tensor for x in self._live_outs if shared and x.result is result]


__all__ = ["Executable", "Partition"]
