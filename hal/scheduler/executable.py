"""A planned step made ready to run: memory taken, launches bound to it.

Runs are a flat list of calls. Devices that can record launches keep them in their own form and submit them again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal import dispatch
from polyhal.hal.capture.result import CapturedConstant, CapturedGraph, StepInput
from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.memory.buffer import Buffer
from polyhal.hal.ops.opdef import Value
from polyhal.hal.protocol import BindingSlot, CommandBuffer, Feature
from polyhal.hal.scheduler.bindings import Moving, Result
from polyhal.hal.scheduler.budget import plan_within
from polyhal.hal.scheduler.calls import Call
from polyhal.hal.scheduler.plan import Owner, Plan
from polyhal.hal.scheduler.report import MemoryReport, report

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class Program:
    """A captured step that can be run again and again.

    Results are new tensors each time: where an earlier result is still in use, its memory is left alone.
    """

    def __init__(self, captured: CapturedGraph, budget: int | None = None) -> None:
        self.captured = captured
        self._budget = budget
        self._prepare(apart=False)

    def _prepare(self, *, apart: bool) -> None:
        """Plan, take memory and bind; with gradients `apart` from the rest if old ones are to stay what they are."""
        self.plan: Plan = plan_within(self.captured, self._budget, apart=apart)
        self.captured.release_gradients()
        self.graph = self.plan.graph
        self.calls = self.plan.calls
        self._refs: list[Ref | None] = [None] * len(self.graph.specs)
        self._moving: dict[int, Moving] = {}
        """For each value that lies in an argument or a result, what moves it."""
        self._arguments: list[tuple[int, Moving]] = []
        """Positions among the arguments of a run, and what moves the values in them."""
        self.results: list[Result] = []
        self.blocks: dict[Device, list[Buffer]] = {}
        """Memory that the program keeps from run to run."""
        self._places: dict[Owner, tuple[Any, int]] = {}
        """Handle and offset in bytes of everything that lies in the blocks."""
        self._found: object = None
        self._left: list[_Left] = []
        """The tensors of `_found` that the step leaves behind."""
        self._take_blocks()
        self._place_inputs()
        self._place_others()
        self._moved: list[BindingSlot] = []
        """What changed place since the last run."""
        self.segments: list[Segment] = _recorded(self._bind() + self._endings(), self._moved)
        """What a run calls, in order."""
        self._steps = [s.run for s in self.segments]
        self._devices = tuple({s.device: None for s in self.segments})
        """Where the step has work, in the order of first use."""

    # --- preparing --------------------------------------------------------------------------------------------------

    def _take_blocks(self) -> None:
        for device, arena in self.plan.arenas.items():
            buffers = self.blocks[device] = [device.pool.take_exactly(n) for n in arena.placement.blocks]
            for owner, (block, offset) in zip(arena.owners, arena.placement.places, strict=True):
                self._places[owner] = (buffers[block].handle, offset)

    def _place_inputs(self) -> None:
        for i, source in enumerate(self.plan.sources):
            if isinstance(source, CapturedConstant):
                self._refs[i] = source.ref
            elif isinstance(source, StepInput):
                moving = Moving()
                self._arguments.append((source.position, moving))
                self._follow(i, moving, 0)

    def _follow(self, value: int, moving: Moving, offset: int) -> None:
        """Let a value lie in what is moved, `offset` elements from its start."""
        spec = self.graph.specs[value]
        assert isinstance(spec, Spec)
        self._moving[value] = moving
        self._refs[value] = moving.reference(spec, offset)

    def _place_others(self) -> None:
        """References for every value that a node makes."""
        storages = self.plan.storages
        results: dict[int, Result] = {}
        for number, storage in enumerate(storages.storages):
            if storage.output and storage.source is None:
                results[number] = Result(storage.spec, storage.device, self._home(number))  # type: ignore[arg-type]
        self.results += results.values()
        self._result_of = results
        for value, found in enumerate(storages.of):
            if found is None or value < self.graph.inputs:
                continue
            number, moved = found
            spec = self.graph.specs[value]
            assert isinstance(spec, Spec)
            source = storages.storages[number].source
            if source in self._moving:
                self._follow(value, self._moving[source], moved)
            elif source is not None:
                base = self._refs[source]
                assert base is not None
                self._refs[value] = Ref(base.handle, spec, base.offset + moved)
            elif number in results:
                self._follow(value, results[number].moving, moved)
            else:
                handle, offset = self._places.get(Owner("storage", number), (None, 0))
                self._refs[value] = Ref(handle, spec, offset // spec.dtype.itemsize + moved)

    def _home(self, number: int) -> tuple[Buffer, int] | None:
        """Where in the blocks a result lies, if it does."""
        place = self._places.get(Owner("storage", number))
        if place is None:
            return None
        storage = self.plan.storages.storages[number]
        whole = next(b for b in self.blocks[storage.device] if b.handle is place[0])  # type: ignore[index]
        return whole, place[1] // storage.spec.dtype.itemsize

    def _bind(self) -> list[_Step]:
        steps: list[_Step] = []
        for k, call in enumerate(self.calls):
            if call is None:
                continue
            assert call.node.origin is not None
            device = call.node.origin.device
            temporary = [self._places[Owner("call", k, part)][0] for part in range(len(call.workspace))]
            live = any(isinstance(self._value(x), RuntimeScalar) for x in call.inputs)
            recorded = _records(device) and call.resolution.recordable and (call.direct or not live)
            inputs = [self._value(x, recorded) for x in call.inputs]
            outputs = [self._value(Value(i), recorded) for i in call.outputs]
            run = call.bound(inputs, outputs, temporary, live=live and not recorded)
            steps.append(_Step(device, run, recorded, call.node))
        return steps

    def _value(self, x: Any, recorded: bool = False) -> Any:
        """An operand as a launch takes it: a reference, a number, None, or a live number.

        Recordings get references to what stands for memory that moves.
        """
        if not isinstance(x, Value):
            return x
        if x.index < self.graph.inputs:
            source = self.plan.sources[x.index]
            if isinstance(source, RuntimeScalar):
                return source
        ref = self._refs[x.index]
        moving = self._moving.get(x.index)
        return moving.recorded(ref) if recorded and moving is not None and ref is not None else ref

    def _endings(self) -> list[_Step]:
        """Copies after the last step: results that lie in an input's memory, then values that replace inputs."""
        steps: list[_Step] = []
        self._outputs: list[tuple[Ref, Any, Result]] = []
        for value in self.graph.outputs:
            found = self.plan.storages.of[value]
            ref = self._refs[value]
            assert found is not None
            assert ref is not None
            device = self.plan.devices[value]
            if found[0] in self._result_of:
                self._outputs.append((ref, device, self._result_of[found[0]]))
                continue
            copy = Result(contiguous(ref.dtype, ref.shape), device)
            target = copy.moving.reference(copy.spec, 0)
            self.results.append(copy)
            if ref.size:
                record = _records(device)
                place = copy.moving.recorded(target) if record else target
                steps.append(_copy(device, self._value(Value(value), record), place))
            self._outputs.append((target, device, copy))
        late: list[_Step] = []
        for n, (value, i, staged) in enumerate(self.plan.copies):
            device = self.plan.devices[value]
            source, target = (self._value(Value(v), _records(device)) for v in (value, i))
            if not target.size:
                continue
            if staged:
                spec = contiguous(source.dtype, source.shape)
                handle, offset = self._places[Owner("copy", n)]
                between = Ref(handle, spec, offset // spec.dtype.itemsize)
                steps.append(_copy(device, source, between))
                source = between
            late.append(_copy(device, source, target))
        return steps + late

    def memory_report(self) -> MemoryReport:
        """What memory runs need, by kind."""

        def taken(device: Device) -> int:
            results = [r.buffer.nbytes for r in self.results if r.device is device and r.buffer is not None]
            return sum(results) + sum(b.nbytes for b in self.blocks.get(device, ()))

        return report(self.plan, taken)

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, arguments: Sequence[Any], count: int | None = None) -> list[tuple[Any, Buffer, Ref]]:
        """Run once with tensors for the graph's arguments, and give tensors that the step leaves behind their new values.

        Returns (device, buffer, reference) of the first `count` outputs, of all by default.
        """
        if self._found is not self.captured.live_outs:
            self._find_left()
        self._moved.clear()
        for position, moving in self._arguments:
            given = arguments[position].ref
            if moving.put(given.handle, given.offset):
                self._moved.append(moving.place)
                if self._lends(given.handle):
                    return self._run_apart(arguments, count)
        for result in self.results:
            if not result.is_free():
                if result.home is not None and result.buffer is not None:
                    return self._run_apart(arguments, count)
                if result.renew():
                    self._moved.append(result.moving.place)
        for note in self.captured.replay_actions:
            note()
        if dispatch.thread.timer is not None:
            dispatch.thread.timer.run(self.segments)
        else:
            for step in self._steps:
                step()
        for device in self._devices:
            device.flush()
        for buffer in self.captured.mutated_buffers:
            buffer.version += 1
        for left in self._left:
            tensor = left.tensor
            if tensor.buffer is not left.result.buffer or tensor.ref is not left.given:
                left.give()
        return [(device, result.buffer, _copied(ref)) for ref, device, result in self._outputs[:count]]  # type: ignore[misc]

    def _lends(self, handle: Any) -> bool:
        """Whether tensors that the step left behind may lie in that memory."""
        return bool(self.plan.gradients) and any(handle is b.handle for held in self.blocks.values() for b in held)

    def _run_apart(self, arguments: Sequence[Any], count: int | None) -> list[tuple[Any, Buffer, Ref]]:
        """Run when someone else uses an old gradient, in memory that a run would use for other things first."""
        self._prepare(apart=True)
        return self.run(arguments, count)

    def _find_left(self) -> None:
        """See which tensors the step leaves behind, and in which results."""
        self._found = self.captured.live_outs
        self._left = [_Left(t, *self._outputs[output]) for t, output in self.captured.live_outs]
        for result in self.results:
            result.left = [x.tensor for x in self._left if x.result is result]


def _copied(ref: Ref) -> Ref:
    return Ref(ref.handle, ref.spec, ref.offset)


class _Left:
    """A tensor that the step leaves behind."""

    __slots__ = ("_device", "_ref", "given", "result", "tensor")

    def __init__(self, tensor: Any, ref: Ref, device: Any, result: Result) -> None:
        """`ref` is the program's own reference to the value."""
        self.tensor = tensor
        self.result = result
        self.given: Ref | None = None
        """What the tensor was told last."""
        self._ref = ref
        self._device = device

    def give(self) -> None:
        """Have the tensor refer to where its value lies now."""
        self.given = _copied(self._ref)
        self.tensor.buffer, self.tensor.ref, self.tensor.device = self.result.buffer, self.given, self._device


class _Step(NamedTuple):
    """A call without arguments. References in it are shared with the program, which moves them."""

    device: Device
    run: Callable[[], None]
    recorded: bool
    """Whether the device takes it in a recording."""
    node: Node | None = None
    """None for copies."""


class Segment(NamedTuple):
    """A part of a run: one call, or neighbouring launches in the form that their device records them in."""

    device: Device
    run: Callable[[], None]
    nodes: Sequence[Node | None]
    """What each call is for; None for copies."""
    recorded: CommandBuffer | None


def _recorded(steps: Sequence[_Step], moved: Collection[BindingSlot]) -> list[Segment]:
    found: list[Segment] = []
    for (device, recorded), group in itertools.groupby(steps, key=lambda s: (s.device, s.recorded)):
        calls = list(group)
        if recorded:
            backend: Any = device.backend
            commands = backend.record([s.run for s in calls])
            found.append(Segment(device, partial(commands.submit, moved), [s.node for s in calls], commands))
        else:
            found += [Segment(device, s.run, [s.node], None) for s in calls]
    return found


def _records(device: Device) -> bool:
    return bool(device.features & Feature.COMMAND_BUFFERS)


def _copy(device: Device, source: Ref, target: Ref) -> _Step:
    return _Step(device, partial(device.backend.copy, source, target), _records(device))


__all__ = ["Call", "Graph", "Program", "Segment"]
