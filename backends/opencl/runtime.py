"""The open device: context, queue, programs and facts. This is what lowering functions build launches with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.kernel_arguments import Bound, bind
from polyhal.backends.common.launching.launch import Arguments
from polyhal.backends.opencl import error_mapping
from polyhal.backends.opencl.capabilities import OpenCLFeatures
from polyhal.backends.opencl.driver import Driver
from polyhal.backends.opencl.launch import KernelLaunch, Parameter, argument_types, parameter_types
from polyhal.backends.opencl.program import ProgramStore
from polyhal.backends.opencl.ptx import Target
from polyhal.backends.opencl.queues import Lanes
from polyhal.backends.opencl.waiter_affinity import waiter_affinity
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.kernels.tuning import Tuning
from polyhal.hal.protocol import Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.backends.opencl.command_buffer import Recorder


class Runtime:
    """One device with its in-order queues. Everything that a backend does goes through `queue`."""

    def __init__(
        self,
        device: cl.Device,
        info: DeviceInfo,
        features: OpenCLFeatures,
        capabilities: Capabilities,
        tuning: Tuning | None = None,
    ) -> None:
        self.device = device
        self.info = info
        self.features = features
        self.capabilities = capabilities
        self.tuning = tuning or Tuning(features, {}, {})
        """The choices that kernel families leave open; lowering functions ask it."""
        self._waiter = waiter_affinity(features.quirks.pin_waiting_thread)
        try:
            self.context = cl.Context([device])
        except cl.Error as error:
            raise error_mapping.translate(error, "opening the device", info.name) from error
        self.lanes = Lanes(self.context, device, info.name)
        if features.quirks.pin_waiting_thread:
            self.lanes.help(self.waiting)
        self.driver = Driver(device)
        self.programs = ProgramStore(self.context, device, features, info)
        self.profile: list[tuple[str, cl.Event]] | None = None
        """Events of launches while profiling is on, else None."""
        self.recorder: Recorder | None = None
        """What takes launches in place of the queue while a step is recorded."""
        self.prefers_buffers: bool | None = None
        """Whether command buffers are faster here than single enqueues; None before that was measured."""

    @property
    def queue(self) -> cl.CommandQueue:
        """The queue of the calling thread's stream."""
        return self.lanes.current().queue

    def launch(
        self,
        name: str,
        source: str,
        definitions: Definitions,
        args: Arguments | Sequence[Parameter],
        items: tuple[int, ...],
        group: tuple[int, ...],
        *,
        kernel: str = "",
        options: Sequence[str] = (),
        workspace: tuple[int, ...] = (),
        target: Target | None = None,
    ) -> Launch:
        """A launch of `kernel` (named as the path by default, with `_` for `/`) from shaders/opencl/`source`.cl.

        `args` binds every parameter of the kernel by name (see `backends.opencl.lowering`). `items` counts the work-items
        needed; it is rounded up to whole groups, so the kernel must check its index. `group` must not depend on the data's
        size: some drivers compile a kernel for each group size. `target` is for NVIDIA's devices only. Raises
        KernelBuildError, and KernelArgumentError where `args` do not fit the kernel.
        """
        if not self.programs.claimed(f"{source}.cl", definitions, options):
            return SimpleLaunch(name, _nothing, workspace)
        file, kernel = f"{source}.cl", kernel or source.replace("/", "_")
        parameters: Sequence[Bound]
        if isinstance(args, Mapping):
            signature = self.programs.signature(file, kernel, definitions)
            parameters, types = bind(signature, args, offsets=True), argument_types(signature)
        else:
            parameters, types = args, parameter_types(args)
        built = self.programs.kernel(file, kernel, definitions, types, options, target)
        rounded = tuple(round_up(n, g) for n, g in zip(items, group, strict=True))
        return KernelLaunch(self, name, built, parameters, rounded, group, workspace)

    def start_profiling(self) -> None:
        """Switch to queues that record timestamps; it costs some microseconds per launch."""
        self.lanes.time(True)
        self.profile = []

    def stop_profiling(self) -> list[tuple[str, int, int]]:
        """Switch back; the launches since `start_profiling` with start and end in nanoseconds of the device's clock."""
        self.lanes.time(False)
        events, self.profile = self.profile or [], None
        return [(name, int(e.profile.start), int(e.profile.end)) for name, e in events]

    def finish(self) -> None:
        """Wait for everything enqueued. Raises the typed error of a command that failed."""
        try:
            with self.waiting():
                self.lanes.finish()
        except cl.Error as error:
            raise error_mapping.translate(error, "waiting for the device", self.info.name) from error

    def waiting(self) -> AbstractContextManager[None]:
        """Where the calling thread had better wait for the device."""
        return self._waiter.bound() if self._waiter else nullcontext()

    def describe(self) -> dict[str, Any]:
        """Facts for `doctor` beyond the capabilities."""
        disk = self.programs.disk
        return {
            "programs_built": self.programs.builds,
            "program_cache": disk.failure or "ok" if disk else "the driver's own",
        }


def _nothing(*args: Any) -> None:
    """The launch of a program that another process builds."""
