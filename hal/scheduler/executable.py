"""A planned step made ready to run: memory allocated, launches bound to it.

A run is a flat list of calls. Devices that support command buffers record their launches once and submit them at each run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal import dispatch
from polyhal.hal.capture.result import CapturedGraph, StepInput
from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.hal.ir.graph import CapturedConstant, Node, Value
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.memory.buffer import Buffer
from polyhal.hal.protocol import BindingSlot, CommandBuffer, Feature
from polyhal.hal.scheduler.bindings import Rebindable, ResultMemory
from polyhal.hal.scheduler.budget import plan_within
from polyhal.hal.scheduler.plan import Owner, StepPlan
from polyhal.hal.scheduler.report import MemoryReport, report

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class Executable:
    """A captured step that can be run again and again.

    Results are new tensors each time: memory of an earlier result that is still in use is left alone.
    """

    def __init__(self, captured: CapturedGraph, budget: int | None = None) -> None:
        """Plan the step within `budget` bytes (None: no limit) and allocate its memory. Raises OutOfMemoryError."""
        self.captured = captured
        self._budget = budget
        self._prepare(separate_gradients=False)

    def _prepare(self, *, separate_gradients: bool) -> None:
        """Plan, allocate and bind. With `separate_gradients`, gradients of earlier runs keep their values."""
        self.plan: StepPlan = plan_within(self.captured, self._budget, separate_gradients=separate_gradients)
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
        self.blocks: dict[Device, list[Buffer]] = {}
        """Memory that is kept from run to run."""
        self._places: dict[Owner, tuple[Any, int]] = {}
        """Handle and offset in bytes of everything that lies in the blocks."""
        self._known_live_outs: object = None
        self._live_outs: list[_LiveOut] = []
        """What `_known_live_outs` refers to."""
        self._allocate_blocks()
        self._bind_inputs()
        self._bind_values()
        self._moved: list[BindingSlot] = []
        """Memory whose address changed since the last run."""
        self.partitions: list[Partition] = _partitioned(self._bound_calls() + self._final_copies(), self._moved)
        """What a run does, in order."""
        self._actions = [p.run for p in self.partitions]
        self._devices = tuple({p.device: None for p in self.partitions})
        """The devices on which the step has work, in the order of first use."""

    # --- preparing --------------------------------------------------------------------------------------------------

    def _allocate_blocks(self) -> None:
        for device, arena in self.plan.arenas.items():
            buffers = self.blocks[device] = [device.pool.take_exactly(n) for n in arena.layout.blocks]
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

    def _bound_calls(self) -> list[_BoundCall]:
        bound: list[_BoundCall] = []
        for k, call in enumerate(self.calls):
            if call is None:
                continue
            device = call.node.device
            workspace = [self._places[Owner("call", k, part)][0] for part in range(len(call.workspace))]
            scalars = any(isinstance(self._argument(x), RuntimeScalar) for x in call.inputs)
            recorded = _records(device) and call.resolution.recordable and (call.direct or not scalars)
            inputs = [self._argument(x, recorded) for x in call.inputs]
            outputs = [self._argument(Value(i), recorded) for i in call.outputs]
            run = call.bound(inputs, outputs, workspace, runtime_scalars=scalars and not recorded)
            bound.append(_BoundCall(device, run, recorded, call.node))
        return bound

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

    def _final_copies(self) -> list[_BoundCall]:
        """Copies after the last step: results that lie in the memory of an input, then the plan's write-backs."""
        copies: list[_BoundCall] = []
        self._outputs: list[tuple[Ref, Any, ResultMemory]] = []
        for value in self.graph.outputs:
            number, _ = self.plan.buffers.slice_of(value)
            ref, device = self._ref(value), self.plan.devices[value]
            if number in self._result_of:
                self._outputs.append((ref, device, self._result_of[number]))
                continue
            result = ResultMemory(contiguous(ref.dtype, ref.shape), device)
            target = result.binding.reference(result.spec, 0)
            self.results.append(result)
            if ref.size:
                record = _records(device)
                slot = result.binding.recorded(target) if record else target
                copies.append(_copy(device, self._argument(Value(value), record), slot))
            self._outputs.append((target, device, result))
        late: list[_BoundCall] = []
        for n, (value, i, staged) in enumerate(self.plan.write_backs):
            device = self.plan.devices[value]
            source, target = (self._argument(Value(v), _records(device)) for v in (value, i))
            if not target.size:
                continue
            if staged:
                spec = contiguous(source.dtype, source.shape)
                handle, offset = self._places[Owner("copy", n)]
                between = Ref(handle, spec, offset // spec.dtype.itemsize)
                copies.append(_copy(device, source, between))
                source = between
            late.append(_copy(device, source, target))
        return copies + late

    def memory_report(self) -> MemoryReport:
        """The memory that runs need, by kind."""

        def allocated(device: Device) -> int:
            results = [r.buffer.nbytes for r in self.results if r.device is device and r.buffer is not None]
            return sum(results) + sum(b.nbytes for b in self.blocks.get(device, ()))

        return report(self.plan, allocated)

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, arguments: Sequence[Any], count: int | None = None) -> list[tuple[Any, Buffer, Ref]]:
        """Run once with tensors for the graph's arguments, and rebind the live-outs of the step to their new values.

        Returns (device, buffer, reference) of the first `count` outputs, of all by default.
        """
        if self._known_live_outs is not self.captured.live_outs:
            self._find_live_outs()
        self._moved.clear()
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
                if result.renew():
                    self._moved.append(result.binding.slot)
        for action in self.captured.replay_actions:
            action()
        if dispatch.thread.timer is not None:
            dispatch.thread.timer.run(self.partitions)
        else:
            for action in self._actions:
                action()
        for device in self._devices:
            device.flush()
        for buffer in self.captured.mutated_buffers:
            buffer.version += 1
        for live_out in self._live_outs:
            tensor = live_out.tensor
            if tensor.buffer is not live_out.result.buffer or tensor.ref is not live_out.bound:
                live_out.rebind()
        return [(device, result.buffer, _copied(ref)) for ref, device, result in self._outputs[:count]]  # type: ignore[misc]

    def _lies_in_blocks(self, handle: Any) -> bool:
        """Whether an argument may be a gradient of an earlier run, in memory that a run uses for other values first."""
        return bool(self.plan.gradients) and any(handle is b.handle for held in self.blocks.values() for b in held)

    def _run_separately(self, arguments: Sequence[Any], count: int | None) -> list[tuple[Any, Buffer, Ref]]:
        """Run although the program still holds an old gradient: from now on gradients get memory of their own."""
        self._prepare(separate_gradients=True)
        return self.run(arguments, count)

    def _find_live_outs(self) -> None:
        """Note the tensors that outlive the step, and the results in which they lie."""
        self._known_live_outs = self.captured.live_outs
        self._live_outs = [_LiveOut(t, *self._outputs[output]) for t, output in self.captured.live_outs]
        for result in self.results:
            result.live_outs = [x.tensor for x in self._live_outs if x.result is result]


def _copied(ref: Ref) -> Ref:
    return Ref(ref.handle, ref.spec, ref.offset)


class _LiveOut:
    """A tensor that the step made and that something outside still refers to."""

    __slots__ = ("_device", "_ref", "bound", "result", "tensor")

    def __init__(self, tensor: Any, ref: Ref, device: Any, result: ResultMemory) -> None:
        """`ref` is the executable's own reference to the value."""
        self.tensor = tensor
        self.result = result
        self.bound: Ref | None = None
        """The reference that the tensor got last."""
        self._ref = ref
        self._device = device

    def rebind(self) -> None:
        """Let the tensor refer to where its value lies now."""
        self.bound = _copied(self._ref)
        self.tensor.buffer, self.tensor.ref, self.tensor.device = self.result.buffer, self.bound, self._device


class _BoundCall(NamedTuple):
    """A call without arguments. The references in it are shared with the executable, which rebinds them."""

    device: Device
    run: Callable[[], None]
    recorded: bool
    """Whether it goes into a command buffer of the device."""
    node: Node | None = None
    """None for copies."""


class Partition(NamedTuple):
    """A part of a run: one call, or consecutive launches in a command buffer."""

    device: Device
    run: Callable[[], None]
    nodes: Sequence[Node | None]
    """The node of each call; None for copies."""
    recorded: CommandBuffer | None


def _partitioned(calls: Sequence[_BoundCall], moved: Collection[BindingSlot]) -> list[Partition]:
    partitions: list[Partition] = []
    for (device, recorded), group in itertools.groupby(calls, key=lambda c: (c.device, c.recorded)):
        members = list(group)
        if recorded:
            backend: Any = device.backend
            commands = backend.record([c.run for c in members])
            submit = partial(commands.submit, moved)
            partitions.append(Partition(device, submit, [c.node for c in members], commands))
        else:
            partitions += [Partition(device, c.run, [c.node], None) for c in members]
    return partitions


def _records(device: Device) -> bool:
    return bool(device.features & Feature.COMMAND_BUFFERS)


def _copy(device: Device, source: Ref, target: Ref) -> _BoundCall:
    return _BoundCall(device, partial(device.backend.copy, source, target), _records(device))


__all__ = ["Executable", "Partition"]
