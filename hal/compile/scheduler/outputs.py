"""Memory of the outputs of a run, and the copies at its end that separate results.

An output stays in the memory where the step computes it, unless that memory belongs to an input, or to a result that the
program expects in separate memory: passes may merge equal values. Outputs that the program expects in common memory are copied
as one block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.ir.graph import Value
from polyhal.hal.compile.scheduler.bindings import Rebindable, ResultMemory
from polyhal.hal.compile.scheduler.partitions import BoundCall
from polyhal.hal.compile.scheduler.plan import StepPlan
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import Feature

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.layout import Spec


class PlacedOutput:
    """An output of the graph with its memory."""

    __slots__ = ("_fixed", "device", "memory", "ref")

    def __init__(self, ref: Ref, device: Device, memory: ResultMemory) -> None:
        self.ref = ref
        """Reference to the output, which follows `memory`."""
        self.device = device
        self.memory = memory
        self._fixed = Ref(ref.handle, ref.spec, ref.offset)

    def fixed(self) -> Ref:
        """Return a reference that stays the same when the memory moves. Runs in the same memory share it."""
        ref, fixed = self.ref, self._fixed
        if fixed.handle is not ref.handle or fixed.offset != ref.offset:
            fixed = self._fixed = Ref(ref.handle, ref.spec, ref.offset)
        return fixed


def records(device: Device) -> bool:
    """Return whether launches on a device are recorded in command buffers."""
    return bool(device.features & Feature.COMMAND_BUFFERS)


@dataclass(slots=True)
class FinalCopies:
    """Copies after the last call of a run: bound calls, and their operands for observers."""

    calls: list[BoundCall] = field(default_factory=list)
    plain: list[tuple[Device, Ref, Ref]] = field(default_factory=list)

    def add(self, device: Device, source: Ref, target: Ref, recorded: tuple[Ref, Ref]) -> None:
        """Add a copy from `source` to `target`; `recorded` are the references to both in command buffers.

        No-op for empty values, which backends never receive.
        """
        if not target.size:
            return
        self.calls.append(BoundCall(device, partial(device.backend.copy, *recorded), records(device)))
        self.plain.append((device, source, target))


class OutputPlacer:
    """Assignment of memory to outputs."""

    def __init__(
        self,
        plan: StepPlan,
        result_of: Mapping[int, ResultMemory],
        ref_of: Callable[[int], Ref],
        argument: Callable[[Any, bool], Any],
    ) -> None:
        """Prepare; `result_of` maps allocations to result memory, and `argument` returns a value as an argument of a launch."""
        self._plan = plan
        self._result_of = result_of
        self._ref_of = ref_of
        self._argument = argument
        self.copies = FinalCopies()
        self.made: list[ResultMemory] = []
        """Additional result memory, the target of copies."""
        self._owners: dict[int, int | None] = {}
        """Memory of the program that each allocation represents."""
        self._blocks: dict[tuple[int, int], ResultMemory] = {}
        """Copies of whole allocations, by the program's memory and the allocation."""

    def run(self) -> list[PlacedOutput]:
        """Return the memory of each output, and add the copies that it needs."""
        plan = self._plan
        pairs = list(zip(plan.graph.outputs, plan.memories, strict=True))
        sharing = Counter((memory, plan.buffers.slice_of(value)[0]) for value, memory in pairs if memory is not None)
        outputs: list[PlacedOutput] = []
        for value, memory in pairs:
            number, offset = plan.buffers.slice_of(value)
            device = plan.devices[value]
            if number in self._result_of and self._owns(memory, number):
                outputs.append(PlacedOutput(self._ref_of(value), device, self._result_of[number]))
            elif memory is not None and sharing[memory, number] > 1 and self._is_whole(number):
                block = self._block(memory, number)
                ref = block.binding.reference(plan.graph.tensor(value), offset)
                outputs.append(PlacedOutput(ref, device, block))
            else:
                outputs.append(self._copied(value, device))
        return outputs

    def _owns(self, memory: int | None, number: int) -> bool:
        """Return whether an allocation may store an output. Its first output determines the program's memory that owns it."""
        return memory is None or self._owners.setdefault(number, memory) == memory

    def _is_whole(self, number: int) -> bool:
        """Return whether an allocation can be copied as a block, including all its views."""
        source = self._plan.buffers.allocations[number].source
        return source is None or self._ref_of(source).is_contiguous

    def _copied(self, value: int, device: Device) -> PlacedOutput:
        """Add a copy of one output, and return the output in its new memory."""
        ref = self._ref_of(value)
        result = self._made(contiguous(ref.dtype, ref.shape), device)
        target = result.binding.reference(result.spec, 0)
        if ref.size:
            self._copy(device, ref, target, self._argument(Value(value), records(device)), result)
        return PlacedOutput(target, device, result)

    def _block(self, memory: int, number: int) -> ResultMemory:
        """Return the block copy of an allocation for all outputs in one memory of the program."""
        known = self._blocks.get((memory, number))
        if known is not None:
            return known
        allocation = self._plan.buffers.allocations[number]
        device = allocation.device
        result = self._blocks[memory, number] = self._made(allocation.spec, device)
        target = result.binding.reference(result.spec, 0)
        if allocation.source is not None:
            source = self._ref_of(allocation.source)
            slot = self._argument(Value(allocation.source), records(device))
        else:
            binding: Rebindable = self._result_of[number].binding
            source = binding.reference(allocation.spec, 0)
            slot = binding.recorded(source) if records(device) else source
        self._copy(device, source, target, slot, result)
        return result

    def _made(self, spec: Spec, device: Device) -> ResultMemory:
        result = ResultMemory(spec, device)
        self.made.append(result)
        return result

    def _copy(self, device: Device, source: Ref, target: Ref, slot: Ref, result: ResultMemory) -> None:
        recorded = result.binding.recorded(target) if records(device) else target
        self.copies.add(device, source, target, (slot, recorded))
