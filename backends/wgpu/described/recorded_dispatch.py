"""Recorded launches, and their description under the rules of WebGPU.

Within one dispatch, WebGPU accepts a buffer that a kernel writes in one binding only. An input in the buffer of an output
shares the output's binding if both have one type; otherwise it is copied first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.described.backend import DescribedMemory
from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.wgpu.arguments import BoundArguments
from polyhal.backends.wgpu.binding_windows import window_start
from polyhal.backends.wgpu.described.noted_shader import NotedShader
from polyhal.backends.wgpu.parameter_struct import ParameterStruct
from polyhal.backends.wgpu.runtime import PipelineBuilder
from polyhal.backends.wgpu.shader import ComputePipeline
from polyhal.backends.wgpu.signature import binding_access, element_types
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.errors import BackendError, message
from polyhal.hal.launch_descriptions import (
    BytesArgument,
    CopyBefore,
    DescribedLaunch,
    KernelText,
    MemoryArgument,
    NumberPlace,
)
from polyhal.hal.layout import Ref, extent

if TYPE_CHECKING:
    from polyhal.backends.wgpu.described.recording import RecordingRuntime

_PADDING = 256


class RecordedDispatch:
    """One dispatch of one pipeline. Implements `polyhal.hal.protocol.Launch`."""

    __slots__ = ("_bound", "_build", "_grid", "_parameters", "_pipeline", "_runtime", "name", "workspace")

    def __init__(
        self,
        runtime: RecordingRuntime,
        pipeline: ComputePipeline,
        build: PipelineBuilder,
        bound: BoundArguments,
        grid: tuple[int, int],
        workspace: tuple[int, ...],
    ) -> None:
        self._runtime = runtime
        self._pipeline = pipeline
        self._build = build
        self._bound = bound
        self._grid = grid
        self._parameters = ParameterStruct(bound)
        self.name = pipeline.name
        self.workspace = workspace

    def __call__(self, *args: Any) -> None:
        recorder = self._runtime.recorder
        if recorder is None or not recorder.accepts():
            raise BackendError(
                message(self.name, "a described device computes nothing", device=self._runtime.info.name)
            )
        recorder.add((self, args))

    def describe(self, call: int, args: Sequence[Any]) -> DescribedLaunch:
        """Return the launch with these arguments as data. Raises BackendError."""
        memory, offsets = self._memory(args)
        numbers = {i: args[i] for _, i, _, _ in self._parameters.numbers if isinstance(args[i], RuntimeScalar)}
        data = self._parameters.pack(args, offsets, dict.fromkeys(numbers, 0))
        places = tuple(
            NumberPlace(offset, kind, numbers[index])
            for _, index, kind, offset in self._parameters.numbers
            if index in numbers
        )
        pipeline, arguments, copies = self._separated(args, memory)
        text = str(pipeline.native)
        shader = NotedShader("", "", (), text, 0, 0)
        kernel = KernelText(self.name, "wgsl", "main", text, group=shader.group)
        parameters = (BytesArgument(data, places),) if data else ()
        return DescribedLaunch(call, kernel, (*arguments, *parameters), self._grid, tuple(copies))

    def _memory(self, args: Sequence[Any]) -> tuple[list[MemoryArgument], list[int]]:
        """Return the memory of each binding, and the offset of each tensor in elements from the start of its binding."""
        access = binding_access(str(self._pipeline.native))
        memory: list[MemoryArgument] = []
        starts: dict[int, int] = {}
        for binding, buffer in enumerate(self._bound.buffers):
            given = args[buffer.index]
            handle = given.handle if isinstance(buffer, Tensor) else given
            start = nbytes = 0
            most = self._runtime.features.max_binding
            if isinstance(buffer, Tensor) and isinstance(handle, DescribedMemory) and handle.nbytes > most:
                start = window_start(given, most, self.name, self._runtime.info.name)
                nbytes = min(most, handle.nbytes - start)
                starts[binding] = start // given.dtype.itemsize
            mode = "read" if access[binding] == "read" else "read_write"
            memory.append(MemoryArgument(handle, start, nbytes, mode, binding=binding))  # type: ignore[arg-type]
        for number, table in enumerate(self._bound.tables, len(memory)):
            memory.append(MemoryArgument(None, access="read", constant=table.words().tobytes(), binding=number))
        offsets = [args[index].offset - starts.get(binding, 0) for _, index, binding in self._parameters.tensors]
        return memory, offsets

    def _separated(
        self, args: Sequence[Any], memory: list[MemoryArgument]
    ) -> tuple[ComputePipeline, list[MemoryArgument], list[CopyBefore]]:
        """Return a pipeline and its bindings without a buffer that is written and bound twice, and copies before the launch."""
        pipeline = self._pipeline
        pairs = list(_aliases(memory))
        if not pairs:
            return pipeline, memory, []
        outputs = [memory[i].binding for i in pipeline.written]
        if any(a.binding in outputs for a, _ in pairs):
            problem = "two outputs are in one buffer, which WebGPU does not allow"
            raise BackendError(message(self.name, problem, device=self._runtime.info.name))
        names = [p.name for p in pipeline.signature.parameters if p.kind == "global"]
        types = element_types(str(pipeline.native))
        shared = {names[a.binding]: names[b.binding] for a, b in pairs if a.start == b.start}
        shared = {x: y for x, y in shared.items() if types[x] == types[y]}
        if shared:
            pipeline = self._build("read", shared)
        kept = binding_access(str(pipeline.native))
        copies: list[CopyBefore] = []
        for a, _ in pairs:
            if a.binding in kept:
                copies.append(self._copied(a, args))
                memory[a.binding] = copies[-1].target
        return pipeline, [m for m in memory if m.binding in kept], copies

    def _copied(self, argument: MemoryArgument, args: Sequence[Any]) -> CopyBefore:
        given = args[self._bound.buffers[argument.binding].index]
        nbytes = argument.nbytes or _end_of(given) or given.nbytes
        nbytes = round_up(nbytes, _PADDING)
        scratch = DescribedMemory(nbytes)
        source = MemoryArgument(argument.handle, argument.start, nbytes, "read", binding=argument.binding)
        return CopyBefore(source, MemoryArgument(scratch, 0, nbytes, "read", binding=argument.binding))


def _aliases(memory: Sequence[MemoryArgument]) -> Iterator[tuple[MemoryArgument, MemoryArgument]]:
    """Yield each binding whose buffer an earlier or later binding writes, with that binding."""
    for i, a in enumerate(memory):
        for j, b in enumerate(memory):
            is_output = b.access == "read_write" and (a.access == "read" or j > i)
            if i != j and a.handle is not None and a.handle is b.handle and is_output:
                yield a, b
                break


def _end_of(given: Any) -> int:
    """Return the bytes from the start of a buffer to the end of a reference; 0 for other memory."""
    if not isinstance(given, Ref):
        return 0
    return (given.offset + extent(given.shape, given.strides)[1] + 1) * given.dtype.itemsize
