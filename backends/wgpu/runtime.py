"""The runtime of lowering functions: device properties, and launches of shaders by name, with definitions and arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments
from polyhal.backends.wgpu.arguments import BoundArguments, bind
from polyhal.backends.wgpu.capabilities import WGPUFeatures
from polyhal.backends.wgpu.shader import ComputePipeline, Definitions, Pipelines
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.protocol import Launch

NOTHING_SHARED: Mapping[str, str] = MappingProxyType({})


class PipelineBuilder(Protocol):
    """Builds a pipeline and its variants for launches whose inputs and outputs are in one buffer."""

    def __call__(self, access: str, shared: Mapping[str, str] = ...) -> ComputePipeline:
        """Return the pipeline for an access mode of the inputs, "read" or "read_write".

        `shared` maps inputs to outputs of the same type whose binding they use instead of one of their own, if the kernel
        is generated from a template.
        """


class Runtime(ABC):
    """Interface of a device for lowering functions: properties that select shaders, and launches."""

    pipelines: Pipelines

    def __init__(self, info: DeviceInfo, features: WGPUFeatures, capabilities: Capabilities) -> None:
        self.info = info
        self.features = features
        self.capabilities = capabilities

    def launch(
        self,
        source: str,
        definitions: Definitions,
        args: Arguments,
        groups: int,
        *,
        workspace: tuple[int, ...] = (),
    ) -> Launch:
        """Return a launch of shaders/wgsl/`source`.wgsl over at least `groups` groups, named as the path with `_` for `/`.

        `args` binds every parameter of the kernel by name (see `backends.wgpu.arguments`). Raises KernelBuildError, and
        KernelArgumentError if `args` do not fit the kernel.

        More groups than fit on one axis are spread over two, possibly with surplus groups at the end: a kernel numbers
        groups by `storage.group()` and checks the number.
        """

        def build(access: str, shared: Mapping[str, str] = NOTHING_SHARED) -> ComputePipeline:
            sharing = {"SHARED_BINDINGS": shared} if shared else {}
            return self.pipelines.pipeline(source, {**definitions, "ACCESS": access, **sharing})

        return self.dispatch(build, args, self.spread(groups), workspace)

    def dispatch(
        self,
        build: PipelineBuilder,
        args: Arguments,
        grid: tuple[int, int],
        workspace: tuple[int, ...] = (),
    ) -> Launch:
        """Return a launch over a grid of groups."""
        pipeline = build("read")
        bound = bind(pipeline.signature, args)
        return self._dispatch(pipeline, build, bound, grid, workspace)

    @abstractmethod
    def _dispatch(
        self,
        pipeline: ComputePipeline,
        build: PipelineBuilder,
        bound: BoundArguments,
        grid: tuple[int, int],
        workspace: tuple[int, ...],
    ) -> Launch:
        """Return a launch of a pipeline; `build` returns variants whose inputs may alias outputs."""

    def spread(self, groups: int) -> tuple[int, int]:
        """Return a grid of two axes with at least `groups` groups."""
        rows = ceil_div(groups, self.features.max_groups)
        return ceil_div(groups, rows), rows
