"""From a step that was loaded on a recording device to a program: its memory, its launches, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.export.numbers import NumberTable
from polyhal.export.program import (
    BufferUse,
    ChangingNumber,
    ProgramBuffer,
    ProgramCopy,
    ProgramKernel,
    ProgramLaunch,
    ProgramTensor,
    Role,
    StepProgram,
    ValueBytes,
    check_name,
)
from polyhal.export.retargeting import Retargeted, place_of, refuse
from polyhal.hal.compile.capture.result import StepInput
from polyhal.hal.compile.capture.scopes import unique_name
from polyhal.hal.compile.ir.graph import CapturedConstant
from polyhal.hal.compile.scheduler.partitions import Partition
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.launch_descriptions import (
    BytesArgument,
    DescribedLaunch,
    DescribesLaunches,
    LocalArgument,
    MemoryArgument,
)
from polyhal.hal.layout import Spec, extent
from polyhal.hal.protocol import BindingSlot
from polyhal.steps.given import GivenTensor
from polyhal.steps.results import OutputIndex, WithGradient
from polyhal.tensor import Tensor

_PADDING = 256
"""Buffers end at a multiple of this, because kernels load vectors."""


def build_program(
    step: Retargeted, target: str, name: str, inputs: Sequence[str] | None, outputs: Sequence[str] | None
) -> StepProgram:
    """Return the program of a step on a recording device.

    `inputs` and `outputs` name its arguments and results in order; by default they have the names of the function's parameters,
    and the keys or positions of its results. Raises ExportError, and ShapeError for another number of names.
    """
    return _ProgramBuilder(step, target, name).built(inputs, outputs)


class _ProgramBuilder:
    def __init__(self, step: Retargeted, target: str, name: str) -> None:
        check_name(name)
        self._step = step
        self._loaded = step.loaded
        self._executable = step.loaded.executable
        self._target = target
        self.program = StepProgram(name, target, _features(self._executable.devices) if target == "webgpu" else ())
        self._numbers = NumberTable()
        self._buffers: dict[int, int] = {}
        """Buffer by the identity of a handle or slot."""
        self._ends: dict[int, int] = {}
        """Bytes of stored memory up to the end of the last tensor in it, by the identity of the handle."""
        self._kept: list[Any] = []
        """Keeps the identities in `_buffers` taken."""
        self._constants: dict[bytes, int] = {}
        self._kernels: dict[Any, int] = {}
        self._problems: list[str] = []

    def built(self, inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> StepProgram:
        self._add_inputs(inputs)
        self._add_state()
        for result in self._executable.results:
            self._add(result.binding.slot, "output", result.spec.nbytes)
        for device, blocks in self._executable.blocks.items():
            for block, nbytes in zip(blocks, self._executable.plan.arenas[device].layout.blocks, strict=True):
                self._add(block.handle, "temporary", nbytes)
        self._add_outputs(outputs)
        for partition in self._executable.partitions:
            self._add_partition(partition)
        problems = [*self._problems, *(f"Python computes a number: {x}" for x in self._numbers.unknown)]
        refuse(problems, self._target)
        self.program.numbers.extend(self._numbers.numbers)
        self.program.streams.extend(self._numbers.streams)
        return self.program

    # --- memory -----------------------------------------------------------------------------------------------------

    def _add(self, handle: Any, role: Role, nbytes: int, content: bytes = b"") -> int:
        """Return the buffer of a handle or slot, which is new unless it was added before."""
        if id(handle) not in self._buffers:
            self._buffers[id(handle)] = len(self.program.buffers)
            self._kept.append(handle)
            self.program.buffers.append(ProgramBuffer(role, -(-max(nbytes, 1) // _PADDING) * _PADDING, content))
        return self._buffers[id(handle)]

    def _add_inputs(self, names: Sequence[str] | None) -> None:
        sources = [s for s in self._executable.plan.sources if isinstance(s, StepInput)]
        specs = {s.position: s.spec for s in sources}
        slots = {position: binding.slot for position, binding in self._executable.arguments}
        positions = sorted(slots)
        declared = self._loaded.argument_names
        known: list[str] = []
        for p in positions:
            known.append(unique_name(declared[p] if p < len(declared) else f"input{p}", known))
        for number, position in enumerate(positions):
            name = _name(names, number, len(positions), known, "input")
            spec = specs[position]
            low, high = extent(spec.shape, spec.strides)
            if low < 0:
                self._problems.append(f"the input {name} has negative strides")
            buffer = self._add(slots[position], "input", (high + 1) * spec.dtype.itemsize)
            self.program.inputs.append(self._tensor(name, buffer, 0, spec))

    def _add_state(self) -> None:
        sources = [s for s in self._executable.plan.sources if isinstance(s, CapturedConstant)]
        kept = [(x.ref, x.buffer.handle) for x in self._loaded.state.values()]
        for ref, handle in [*kept, *((s.ref, s.buffer.handle) for s in sources)]:
            end = (ref.offset + extent(ref.shape, ref.strides)[1] + 1) * ref.dtype.itemsize
            self._ends[id(handle)] = max(end, self._ends.get(id(handle), 0))
        for name, x in self._loaded.state.items():
            buffer = self._add_stored(x.device, x.buffer.handle, "state")
            self.program.state.append(self._tensor(name, buffer, x.ref.offset, x.ref.spec))
        for source in sources:  # the state's were added before
            self._add_stored(source.device, source.buffer.handle, "constant")

    def _add_stored(self, device: Any, handle: Any, role: Role) -> int:
        """Return the buffer of memory whose present contents the program starts with."""
        if id(handle) in self._buffers:
            return self._buffers[id(handle)]
        end = self._ends[id(handle)]
        content = bytearray(end)
        if end:
            device.backend.copy_from_device(handle, 0, memoryview(content))
        return self._add(handle, role, end, bytes(content))

    def _tensor(self, name: str, buffer: int, offset: int, spec: Spec) -> ProgramTensor:
        check_name(name)
        saved = self._step.saved_dtypes.get(name, "")
        start = offset * spec.dtype.itemsize
        return ProgramTensor(name, buffer, start, spec.dtype.name, spec.shape, spec.strides, saved)

    # --- results ----------------------------------------------------------------------------------------------------

    def _add_outputs(self, names: Sequence[str] | None) -> None:
        found: list[tuple[str, tuple[Any, int, Spec]]] = []
        self._visit(self._loaded.results, "", found)
        known: list[str] = []
        for path, _ in found:
            known.append(unique_name(path or "result", known))
        for number, (_, (handle, offset, spec)) in enumerate(found):
            name = _name(names, number, len(found), known, "output")
            if not spec.size:  # no launch writes it
                self._add(handle, "output", 0)
            self.program.outputs.append(self._tensor(name, self._buffers[id(handle)], offset, spec))

    def _visit(self, value: Any, path: str, found: list[tuple[str, tuple[Any, int, Spec]]]) -> None:
        """Collect the tensors of a structure of results with their memory; other values are left out."""
        if isinstance(value, dict):
            for key, x in value.items():
                self._visit(x, f"{path}.{key}" if path else str(key), found)
        elif isinstance(value, (list, tuple)):
            for i, x in enumerate(value):
                self._visit(x, f"{path}.{i}" if path else str(i), found)
        elif isinstance(value, WithGradient):
            self._visit(value.tensor, path, found)
        elif isinstance(value, OutputIndex):
            placed = self._executable.outputs[value.index]
            ref = placed.memory.binding.recorded(placed.ref)
            found.append((path, (ref.handle, ref.offset, ref.spec)))
        elif isinstance(value, Tensor):
            found.append((path, (value.buffer.handle, value.ref.offset, value.ref.spec)))
        elif isinstance(value, GivenTensor):
            found.append((path, self._given(value)))

    def _given(self, value: GivenTensor) -> tuple[Any, int, Spec]:
        source = value.source
        if isinstance(source, Tensor):
            return source.buffer.handle, source.ref.offset + value.distance, value.spec
        slot = next(binding.slot for position, binding in self._executable.arguments if position == source)
        return slot, value.distance, value.spec

    # --- launches ---------------------------------------------------------------------------------------------------

    def _add_partition(self, partition: Partition) -> None:
        recorded: object = partition.recorded
        if not isinstance(recorded, DescribesLaunches):
            for node in partition.nodes:
                if node is not None and not any(s.size for s in self._executable.graph.output_specs(node)):
                    continue
                kind = (
                    "it runs on the host" if recorded is None else f"{partition.device} does not describe its launches"
                )
                self._problems.append(f"{kind}: {'a copy' if node is None else place_of(node)}")
            return
        for launch in recorded.describe():
            node = partition.nodes[launch.call]
            self._add_launch(launch, "copy" if node is None else node.op.name)

    def _add_launch(self, launch: DescribedLaunch, op: str) -> None:
        for copy in launch.copies:
            source, target = self._use(copy.source), self._use(copy.target)
            nbytes = min(copy.source.nbytes, self.program.buffers[source.buffer].nbytes - source.offset)
            self.program.commands.append(
                ProgramCopy(source.buffer, source.offset, target.buffer, target.offset, nbytes)
            )
        text = launch.kernel
        kernel = ProgramKernel(text.name, text.language, text.entry, text.source, text.options, text.group)
        index = self._kernels.setdefault(kernel, len(self._kernels))
        if index == len(self.program.kernels):
            self.program.kernels.append(kernel)
        arguments: list[BufferUse | ValueBytes | LocalArgument] = []
        for argument in launch.arguments:
            if isinstance(argument, MemoryArgument):
                arguments.append(self._use(argument))
            elif isinstance(argument, BytesArgument):
                numbers = [ChangingNumber(p.offset, p.type, self._numbers.add(p.number)) for p in argument.numbers]
                arguments.append(ValueBytes(argument.data, tuple(numbers)))
            elif isinstance(argument, LocalArgument):
                arguments.append(argument)
        self.program.commands.append(ProgramLaunch(index, tuple(arguments), launch.grid, op))

    def _use(self, argument: MemoryArgument) -> BufferUse:
        buffer = self._buffer_of(argument)
        nbytes = argument.nbytes or self.program.buffers[buffer].nbytes - argument.start
        return BufferUse(buffer, argument.start, nbytes, argument.access, argument.binding)

    def _buffer_of(self, argument: MemoryArgument) -> int:
        handle = argument.handle
        if handle is None:
            if argument.constant not in self._constants:
                content = argument.constant
                self._constants[content] = self._add(object(), "constant", len(content), content)
            return self._constants[argument.constant]
        if id(handle) not in self._buffers:
            if isinstance(handle, BindingSlot):
                raise ValueError("a launch uses memory of neither an argument nor a result")
            self._add(handle, "temporary", argument.nbytes or int(getattr(handle, "nbytes", 0)))
        return self._buffers[id(handle)]


def _features(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the optional features of WebGPU that the devices have, which kernels may use."""
    return tuple(sorted({name for d in devices for name, found in d.capabilities.features.items() if found == "yes"}))


def _name(names: Sequence[str] | None, number: int, count: int, known: Sequence[str], what: str) -> str:
    """Return the name of an input or output. Raises ShapeError for another number of names."""
    if names is None:
        return known[number]
    if len(names) != count or len(set(names)) != count:
        raise ShapeError(
            message("export", f"the {what}s are named {list(names)}", expected=f"{count} different names, one for each")
        )
    return names[number]
