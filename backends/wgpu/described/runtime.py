"""The runtime of a described adapter: records the shaders that lowering functions launch, and checks the launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.wgpu.arguments import BoundArguments
from polyhal.backends.wgpu.binding_windows import window_start
from polyhal.backends.wgpu.capabilities import WGPUFeatures
from polyhal.backends.wgpu.described.description import DescribedAdapter
from polyhal.backends.wgpu.described.noted_shaders import NotedShaders
from polyhal.backends.wgpu.runtime import PipelineBuilder, Runtime
from polyhal.backends.wgpu.shader import ComputePipeline
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.errors import KernelBuildError, message
from polyhal.hal.protocol import Launch, SimpleLaunch


class DescribedAdapterRuntime(Runtime):
    """Runtime of a device without a driver."""

    pipelines: NotedShaders

    def __init__(
        self, info: DeviceInfo, features: WGPUFeatures, capabilities: Capabilities, adapter: DescribedAdapter
    ) -> None:
        super().__init__(info, features, capabilities)
        self.adapter = adapter
        self.pipelines = NotedShaders(features, info, str(adapter.info["backend_type"]))

    def _dispatch(
        self,
        pipeline: ComputePipeline,
        build: PipelineBuilder,
        bound: BoundArguments,
        grid: tuple[int, int],
        workspace: tuple[int, ...],
    ) -> Launch:
        """Record the shader. Raises KernelBuildError if the device could not run it."""
        self.check(pipeline, grid, workspace)

        def launch(*args: Any) -> None:
            handles = self._bound(pipeline.name, bound, args)
            if any(handles.count(handles[i]) > 1 for i in pipeline.written if i < len(handles)):
                self.check(build("read_write"), grid, workspace)

        return SimpleLaunch(pipeline.name, launch, workspace)

    def check(self, pipeline: ComputePipeline, grid: tuple[int, int], workspace: Sequence[int]) -> None:
        """Record a shader. Raises KernelBuildError if the device could not run it."""
        shader = self.pipelines.note(pipeline)
        if shader is None:
            return
        problems = [*shader.violations(self.adapter.features, self.adapter.limits), *self._excesses(grid, workspace)]
        if problems:
            problem = f"{pipeline.name} requires {' and '.join(problems)}"
            raise KernelBuildError(message(shader.file, problem, device=self.info.name))

    def _excesses(self, grid: tuple[int, int], workspace: Sequence[int]) -> Iterator[str]:
        """Yield the limits that a launch exceeds."""
        if max(grid) > (most := self.features.max_groups):
            yield f"{grid} groups, above the adapter's limit of {most} per axis"
        if workspace and max(workspace) > (most := self.features.max_binding):
            yield f"a workspace of {max(workspace)} bytes, above the maximum binding size of {most}"

    def _bound(self, kernel: str, bound: BoundArguments, args: Sequence[Any]) -> list[int]:
        """Return the identities of the buffers of a launch.

        Raises BackendError for an operand beyond the maximum binding size.
        """
        limit, handles = self.features.max_binding, []
        for buffer in bound.buffers:
            given = args[buffer.index]
            handle = given.handle if isinstance(buffer, Tensor) else given
            if isinstance(buffer, Tensor) and getattr(handle, "nbytes", 0) > limit:
                window_start(given, limit, kernel, self.info.name)
            handles.append(id(handle))
        return handles
