"""The open device: encoder, pipelines and memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.launch import Arguments, Workspace
from polyhal.backends.common.launching.launch_recorder import LaunchRecorder
from polyhal.backends.wgpu import capabilities as probed
from polyhal.backends.wgpu.arguments import BoundArguments
from polyhal.backends.wgpu.cffi_types import parse_types
from polyhal.backends.wgpu.command_buffer import DispatchCall
from polyhal.backends.wgpu.discovery import WGPUAdapter
from polyhal.backends.wgpu.encoder import CommandEncoder
from polyhal.backends.wgpu.error_mapping import AdapterErrors
from polyhal.backends.wgpu.forking import release_nothing_in_children
from polyhal.backends.wgpu.launch import DispatchLaunch
from polyhal.backends.wgpu.mapping import mapper
from polyhal.backends.wgpu.memory import Allocation, WGPUMemory
from polyhal.backends.wgpu.native import binder, waiter
from polyhal.backends.wgpu.profiling import Timestamps
from polyhal.backends.wgpu.read_back import ReadBack
from polyhal.backends.wgpu.runtime import PipelineBuilder, Runtime
from polyhal.backends.wgpu.shader import ComputePipeline, PipelineCache


class WGPURuntime(Runtime):
    """One device and its queue."""

    pipelines: PipelineCache

    def __init__(
        self, adapter: WGPUAdapter, binding_limit: int = 0, quirks: Mapping[str, bool | int] | None = None
    ) -> None:
        """Open the device. For tests, `binding_limit` lowers the maximum binding size, and `quirks` switches workarounds."""
        import wgpu

        parse_types(getattr(wgpu.backends.wgpu_native, "ffi", None))
        release_nothing_in_children()
        self.errors = AdapterErrors(adapter.info.name)
        native = adapter.native
        limits = probed.required_limits(native, binding_limit)
        try:
            self.device: Any = native.request_device_sync(
                required_features=probed.required_features(native), required_limits=limits
            )
        except (wgpu.GPUError, RuntimeError) as error:
            raise self.errors.translate(error, None, "opening the device") from error
        features = probed.features(native, adapter.info.type, limits, quirks or {})
        super().__init__(adapter.info, features, probed.capabilities(native, features, limits))
        self.encoder = CommandEncoder(self.device, self.errors)
        self.pipelines = PipelineCache(self.device, self.features, self.encoder.ring.layout, adapter.info.name)
        self.bind = binder(self.device)
        self.map = mapper(self.device)
        self.memory = WGPUMemory(self)
        self.read_back = ReadBack(self)
        self.recorder: LaunchRecorder[DispatchCall] | None = None
        """Recorder that receives launches instead of the encoder while a command buffer is recorded."""
        self.recording = threading.Lock()
        self._wait = waiter(self.device) or self._read_fence
        self._fence: Allocation | None = None

    def _dispatch(
        self,
        pipeline: ComputePipeline,
        build: PipelineBuilder,
        bound: BoundArguments,
        grid: tuple[int, int],
        workspace: tuple[int, ...],
    ) -> DispatchLaunch:
        """Implement `Runtime._dispatch`."""
        return DispatchLaunch(self, pipeline, lambda: build("read_write"), bound, grid, workspace)

    def patch(self, allocation: Allocation, word: int, mask: int, bits: int) -> None:
        """Replace the bits of `mask` in one word of a buffer."""
        args: Arguments = {"words": Workspace(0), "word": word, "mask": mask, "bits": bits}
        self.launch("lib/patch", {}, args, 1)(allocation)

    def finish(self) -> None:
        """Submit all recorded work and wait for it."""
        import wgpu

        self.encoder.flush()
        try:
            self._wait()
        except (wgpu.GPUError, RuntimeError) as error:
            raise self.errors.translate(error, None, "waiting for submitted work") from error

    def _read_fence(self) -> None:
        """Wait for submitted work by a copy to the host."""
        self._fence = self._fence or self.memory.allocate(4)
        self.memory.read(self._fence, 0, memoryview(bytearray(4)))

    def start_profiling(self) -> None:
        """Time all later launches. Each launch is then a separate compute pass."""
        self.finish()
        self.encoder.timestamps = Timestamps(self.device)

    def stop_profiling(self) -> list[tuple[str, int, int]]:
        """Return (name, start, end) of the launches since `start_profiling`, in nanoseconds of the device's clock."""
        self.finish()
        timestamps, self.encoder.timestamps = self.encoder.timestamps, None
        return timestamps.read() if timestamps is not None else []
