"""Launches: pipelines bound to constants and to positions in the argument list of an op.

Buffers are bindings 0, 1, ... of group 0. Everything else is a member of the struct `Parameters`: one `u32` for the offset of
each tensor, and each number in its own type, with 64-bit integers as two `u32`, the low half first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.launch import Table, Tensor
from polyhal.backends.wgpu.arguments import BoundArguments
from polyhal.backends.wgpu.binding_windows import window_start
from polyhal.backends.wgpu.memory import Allocation
from polyhal.backends.wgpu.parameter_struct import ParameterStruct
from polyhal.backends.wgpu.shader import ComputePipeline

if TYPE_CHECKING:
    from polyhal.backends.wgpu.device_runtime import WGPURuntime
    from polyhal.backends.wgpu.native import Dispatch

_MAX_BIND_GROUPS = 512
"""Maximum bind groups cached per launch. Few are used, because buffers from the pool recur."""


class DispatchLaunch:
    """One dispatch of one pipeline. Implements `polyhal.hal.protocol.Launch`."""

    __slots__ = (
        "_aliased",
        "_buffers",
        "_grid",
        "_groups",
        "_make_aliased",
        "_parameters",
        "_pipeline",
        "_runtime",
        "_tables",
        "name",
        "workspace",
    )

    def __init__(
        self,
        runtime: WGPURuntime,
        pipeline: ComputePipeline,
        make_aliased: Callable[[], ComputePipeline],
        arguments: BoundArguments,
        grid: tuple[int, int],
        workspace: tuple[int, ...] = (),
    ) -> None:
        """Prepare a launch.

        `make_aliased` builds the variant for a buffer that is both read and written. `workspace` is in bytes.
        """
        self._runtime = runtime
        self.name = pipeline.name
        self.workspace = workspace
        self._pipeline = pipeline
        self._make_aliased = make_aliased
        self._aliased: ComputePipeline | None = None
        self._grid = grid
        self._parameters = ParameterStruct(arguments)
        self._buffers = tuple((b.index, isinstance(b, Tensor)) for b in arguments.buffers)
        self._tables = [_upload(runtime, table) for table in arguments.tables]
        self._groups: dict[Any, tuple[ComputePipeline, Any]] = {}

    def __call__(self, *args: Any) -> None:
        recorder = self._runtime.recorder
        if recorder is not None and recorder.accepts():
            recorder.add((self, args))
        else:
            self._runtime.encoder.dispatch(*self.prepare(args))

    def prepare(self, args: Sequence[Any]) -> Dispatch:
        """Return pipeline, bind group, parameters and groups along each axis for these arguments."""
        allocations = [args[index].handle if tensor else args[index] for index, tensor in self._buffers]
        if self._tables:
            allocations += self._tables
        for allocation in allocations:
            if allocation.exceeds_binding:
                return self._windowed(args, allocations)
        parameters = self._parameters
        data = parameters.packed
        offsets = [args[index].offset for _, index, _ in parameters.tensors]
        if not data or any(offsets):
            data = parameters.pack(args, offsets)
        key = tuple([a.key for a in allocations])
        bound = self._groups.get(key)
        if bound is None:
            bound = self._bind(key, allocations, [(0, a.nbytes) for a in allocations])
        return (*bound, data, *self._grid)

    def _windowed(self, args: Sequence[Any], allocations: list[Allocation]) -> Dispatch:
        """Bind windows of buffers that exceed a binding: each starts just before its operand."""
        limit = self._runtime.features.max_binding
        windows, offsets = [], {}
        by_buffer = {binding: (place, index) for place, index, binding in self._parameters.tensors}
        for binding, allocation in enumerate(allocations):
            start = 0
            if allocation.exceeds_binding and binding in by_buffer:
                ref = args[by_buffer[binding][1]]
                start = window_start(ref, limit, self.name, self._runtime.info.name)
                offsets[by_buffer[binding][0]] = ref.offset - start // ref.dtype.itemsize
            windows.append((start, min(limit, allocation.nbytes - start)))
        shifted = [offsets.get(place, args[index].offset) for place, index, _ in self._parameters.tensors]
        key = (tuple(a.key for a in allocations), tuple(windows))
        pipeline, group = self._groups.get(key) or self._bind(key, allocations, windows)
        return pipeline, group, self._parameters.pack(args, shifted), *self._grid

    def _bind(
        self, key: Any, allocations: list[Allocation], windows: Sequence[tuple[int, int]]
    ) -> tuple[ComputePipeline, Any]:
        pipeline = self._pipeline
        if len({a.key for a in allocations}) < len(allocations) and self._aliases_output(allocations):
            if self._aliased is None:
                self._aliased = self._make_aliased()
            pipeline = self._aliased
        bindings = [(a.buffer, start, size) for a, (start, size) in zip(allocations, windows, strict=True)]
        group = self._runtime.bind(self.name, pipeline.layout, bindings)
        if len(self._groups) >= _MAX_BIND_GROUPS:
            self._groups.clear()
        self._groups[key] = (pipeline, group)
        return pipeline, group

    def _aliases_output(self, allocations: list[Allocation]) -> bool:
        """Return whether a written buffer is bound more than once."""
        keys = [a.key for a in allocations]
        return any(keys.count(keys[i]) > 1 for i in self._pipeline.written)


def _upload(runtime: WGPURuntime, table: Table) -> Allocation:
    """Allocate and fill the memory of a table. The launch owns it."""
    data = table.words()
    allocation = runtime.memory.allocate(data.nbytes)
    runtime.memory.write(memoryview(data.tobytes()), allocation, 0)
    return allocation
