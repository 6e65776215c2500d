"""The open device: recorder, pipelines and facts. This is what lowering functions build launches with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, Workspace
from polyhal.backends.wgpu import capabilities as probed
from polyhal.backends.wgpu import error_mapping
from polyhal.backends.wgpu.command_buffer import Tape
from polyhal.backends.wgpu.discovery import Found
from polyhal.backends.wgpu.encoder import Recorder
from polyhal.backends.wgpu.launch import KernelLaunch, Parameter
from polyhal.backends.wgpu.memory import Block, Memory
from polyhal.backends.wgpu.native import binder
from polyhal.backends.wgpu.profiling import Timestamps
from polyhal.backends.wgpu.shader import Definitions, Pipeline, PipelineStore


class Runtime:
    """One device and its queue."""

    def __init__(self, found: Found, binding_limit: int = 0) -> None:
        """`binding_limit` lowers, for tests, how many bytes of a buffer a kernel can see."""
        import wgpu

        self.info = found.info
        limits = probed.required_limits(found.adapter, binding_limit)
        try:
            self.device: Any = found.adapter.request_device_sync(
                required_features=probed.required_features(found.adapter), required_limits=limits
            )
        except (wgpu.GPUError, RuntimeError) as error:
            raise error_mapping.translate(error, None, "opening the device", found.info.name) from error
        self.features = probed.features(found.adapter, found.info.type, limits)
        self.capabilities = probed.capabilities(found.adapter, self.features, limits)
        self.recorder = Recorder(self.device, self.features, found.info.name)
        self.pipelines = PipelineStore(self.device, self.features, self.recorder.parameter_layout, found.info.name)
        self.bind = binder(self.device)
        self.memory = Memory(self)
        self.tape: Tape | None = None
        """What takes launches in place of the recorder while a step is kept for replay."""
        self._fence = self.memory.allocate(4)

    def launch(
        self,
        name: str,
        source: str,
        definitions: Definitions,
        parameters: Sequence[Parameter],
        groups: int,
        *,
        workspace: tuple[int, ...] = (),
    ) -> KernelLaunch:
        """A launch of shaders/wgsl/`source`.wgsl over at least `groups` groups.

        More groups than one axis takes are spread over two, the last of which may be superfluous: a kernel numbers
        groups with `storage.group()` and checks the number. Raises KernelBuildError.
        """
        size = sum(_words(p) for p in parameters) * 4

        def build(access: str) -> Pipeline:
            return self.pipelines.pipeline(name, source, {**definitions, "ACCESS": access}, size)

        rows = ceil_div(groups, self.features.max_groups)
        grid = (ceil_div(groups, rows), rows)
        return KernelLaunch(self, name, build("read"), lambda: build("read_write"), parameters, grid, workspace)

    def patch(self, block: Block, word: int, mask: int, bits: int) -> None:
        """Replace the bits of `mask` in one word of a buffer."""
        constants = [Constant(v, "uint") for v in (word, mask, bits)]
        self.launch("patch", "lib/patch", {}, [Workspace(0), *constants], 1)(block)

    def finish(self) -> None:
        """Submit, and wait until everything is done."""
        self.memory.read(self._fence, 0, memoryview(bytearray(4)))

    def start_profiling(self) -> None:
        """Time every launch from now on; each is then a pass of its own."""
        self.finish()
        self.recorder.timestamps = Timestamps(self.device)

    def stop_profiling(self) -> list[tuple[str, int, int]]:
        """The launches since `start_profiling` with start and end in nanoseconds of the device's clock."""
        self.finish()
        timestamps, self.recorder.timestamps = self.recorder.timestamps, None
        return timestamps.read() if timestamps is not None else []


def _words(parameter: Parameter) -> int:
    if isinstance(parameter, Workspace):
        return 0
    return 2 if getattr(parameter, "type", "") in ("long", "ulong") else 1
