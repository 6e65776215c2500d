"""A described device that records the launches of captured steps, from which they are exported to browsers.

Its memory keeps uploaded bytes, so that an export finds weights and constants, and copies them. It computes nothing: a launch
outside of a recording raises BackendError.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.backends.common.described.backend import DescribedMemory
from polyhal.backends.common.launching.launch_recorder import LaunchRecorder, record_launches
from polyhal.backends.wgpu.arguments import BoundArguments
from polyhal.backends.wgpu.capabilities import WGPUFeatures
from polyhal.backends.wgpu.described.backend import WGPUDescribedBackend
from polyhal.backends.wgpu.described.description import AdapterDescription, DescribedAdapter
from polyhal.backends.wgpu.described.recorded_dispatch import RecordedDispatch
from polyhal.backends.wgpu.described.runtime import DescribedAdapterRuntime
from polyhal.backends.wgpu.runtime import PipelineBuilder
from polyhal.backends.wgpu.shader import ComputePipeline
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.errors import BackendError, message
from polyhal.hal.launch_descriptions import DescribedLaunch
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import BindingSlot, CommandBuffer, Launch, RecordedLaunch

if TYPE_CHECKING:
    from collections.abc import Collection


class StoredMemory(DescribedMemory):
    """An allocation with its contents, zero at first."""

    __slots__ = ("content",)

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.content = np.zeros(nbytes, np.uint8)


class RecordingRuntime(DescribedAdapterRuntime):
    """Runtime whose launches are recorded with their arguments."""

    def __init__(
        self, info: DeviceInfo, features: WGPUFeatures, capabilities: Capabilities, adapter: DescribedAdapter
    ) -> None:
        super().__init__(info, features, capabilities, adapter)
        self.recorder: LaunchRecorder[tuple[RecordedDispatch, tuple[Any, ...]]] | None = None
        self.recording = threading.Lock()

    def _dispatch(
        self,
        pipeline: ComputePipeline,
        build: PipelineBuilder,
        bound: BoundArguments,
        grid: tuple[int, int],
        workspace: tuple[int, ...],
    ) -> Launch:
        self.check(pipeline, grid, workspace)
        return RecordedDispatch(self, pipeline, build, bound, grid, workspace)


class RecordingDescribedBackend(WGPUDescribedBackend):
    """A described device with `record`."""

    records_only = True
    _runtime_class = RecordingRuntime
    runtime: RecordingRuntime

    def __init__(self, described: AdapterDescription, option: str) -> None:
        """`option` is the part of the device's name after the card, which tells it from devices of the same card."""
        super().__init__(described, {"long_shaders": True})
        self.info = replace(self.info, selector=f"{self.info.selector},{option}", id=f"{self.info.id},{option}")

    def allocate(self, nbytes: int) -> StoredMemory:
        """Allocate memory of the host. Raises OutOfMemoryError if it exceeds the device's largest buffer."""
        super().allocate(nbytes)
        return StoredMemory(nbytes)

    def copy_to_device(self, src: memoryview, dst: DescribedMemory, offset: int) -> None:
        """Store bytes."""
        if isinstance(dst, StoredMemory):
            dst.content[offset : offset + src.nbytes] = np.frombuffer(src.cast("B"), np.uint8)

    def copy_from_device(self, src: DescribedMemory, offset: int, dst: memoryview) -> None:
        """Read bytes that were stored."""
        if isinstance(src, StoredMemory):
            dst.cast("B")[:] = src.content[offset : offset + dst.nbytes].tobytes()

    def copy(self, src: Ref, out: Ref) -> None:
        """Copy elements: in a recording by a launch, otherwise on the host."""
        recorder = self.runtime.recorder
        if recorder is not None and recorder.accepts():
            super().copy(src, out)
        else:
            _elements(out)[...] = _elements(src)

    def record(self, calls: Sequence[Callable[[], None]]) -> CommandBuffer:
        """Record the launches of `calls`."""
        return DescribedCommandBuffer(self.info, *record_launches(self.runtime, calls))


def _elements(ref: Ref) -> np.ndarray:
    """Return the elements of a reference to stored memory."""
    size = ref.dtype.itemsize
    steps = tuple(s * size for s in ref.strides)
    return np.ndarray(ref.shape, ref.dtype.numpy, ref.handle.content, ref.offset * size, steps)


class DescribedCommandBuffer:
    """Recorded launches, which can be described. Implements `polyhal.hal.launch_descriptions.DescribesLaunches`."""

    def __init__(
        self,
        info: DeviceInfo,
        launches: Sequence[tuple[RecordedDispatch, tuple[Any, ...]]],
        origins: Sequence[int],
        kept: Sequence[object],
    ) -> None:
        self._info = info
        self._recorded = list(zip(origins, launches, strict=True))
        self._kept = kept
        self.launches = tuple(RecordedLaunch(call, launch.name) for call, (launch, _) in self._recorded)

    def submit(self, rebound: Collection[BindingSlot]) -> None:
        """Raise BackendError: the device computes nothing."""
        raise BackendError(message(None, "a described device computes nothing", device=self._info.name))

    def describe(self) -> Sequence[DescribedLaunch]:
        """Return the launches in order."""
        return [launch.describe(call, args) for call, (launch, args) in self._recorded]
