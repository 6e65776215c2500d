"""The open device: context, queues and programs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.kernel_arguments import Bound
from polyhal.backends.common.launching.kernel_signature import KernelSignature
from polyhal.backends.common.launching.launch import Arguments
from polyhal.backends.common.launching.launch_recorder import LaunchRecorder
from polyhal.backends.opencl.driver import Driver
from polyhal.backends.opencl.error_mapping import DeviceLimits, DriverErrors
from polyhal.backends.opencl.kernel_statistics import local_bytes
from polyhal.backends.opencl.launch import KernelLaunch, argument_types
from polyhal.backends.opencl.profile import TimedEnqueue
from polyhal.backends.opencl.program import CompiledKernel, ProgramCache, ProgramOrigin
from polyhal.backends.opencl.queues import CommandQueues
from polyhal.backends.opencl.threads_at_exit import end_threads_at_exit
from polyhal.backends.opencl.waiter_affinity import waiter_affinity
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.language import BY_LOCAL_MEMORY, BY_SUBGROUPS, EXCHANGE
from polyhal.backends.opencl_c.runtime import KernelRequest, Runtime
from polyhal.backends.opencl_c.user_kernel import MakeLaunch
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.core.kernels.tuning import Tuning
from polyhal.hal.errors import BackendError, KernelBuildError, message
from polyhal.hal.protocol import Launch

if TYPE_CHECKING:
    from polyhal.backends.opencl.launch import BoundLaunch


class DeviceRuntime(Runtime):
    """An open device with its in-order queues."""

    def __init__(
        self,
        device: cl.Device,
        info: DeviceInfo,
        features: KernelFeatures,
        capabilities: Capabilities,
        tuning: Tuning | None = None,
        context: cl.Context | None = None,
    ) -> None:
        """`context` may contain further devices; by default the device has its own."""
        end_threads_at_exit()
        super().__init__(info, features, capabilities, tuning or Tuning(features, {}, {}))
        self.device = device
        self.errors = DriverErrors(info.name, DeviceLimits.of(device))
        # Threads that wait for different sub-devices must not share the core without a worker thread.
        self._waiter = waiter_affinity(features.quirks.pin_waiting_thread and not features.sub_device)
        try:
            self.context = context or cl.Context([device])
        except cl.Error as error:
            raise self.errors.translate(error, "opening the device") from error
        self.queues = CommandQueues(self.context, device, self.errors)
        if features.quirks.pin_waiting_thread:
            self.queues.wait_after_batches(self.waiting)
        self.driver = Driver(device)
        self.programs: ProgramCache = ProgramCache(self.context, device, lambda: self.features, info)
        self.profile: list[TimedEnqueue] | None = None
        """Names and events of launches while profiling is on, else None."""
        self.recorder: LaunchRecorder[BoundLaunch] | None = None
        """Receives launches instead of the queue while a command buffer is recorded."""
        self.recording = threading.Lock()
        self.prefers_khr_buffers: bool | None = None
        """True if the driver's command buffers are faster than single enqueues; None until it is measured."""

    @property
    def queue(self) -> cl.CommandQueue:
        """Queue of the calling thread's stream."""
        return self.queues.current().native

    def launch(
        self,
        source: str,
        definitions: Definitions,
        args: Arguments,
        items: tuple[int, ...],
        group: tuple[int, ...],
        **given: Any,
    ) -> Launch:
        """As `Runtime.launch`.

        If the driver fails to compile sub-groups, warn and do without them for all later launches.
        """
        try:
            return super().launch(source, definitions, args, items, group, **given)
        except KernelBuildError as error:
            if definitions.get(EXCHANGE) != BY_SUBGROUPS:
                raise
            launch = super().launch(source, {**definitions, EXCHANGE: BY_LOCAL_MEMORY}, args, items, group, **given)
            self.features = replace(self.features, subgroups=False)
            text = (
                f"the driver lists sub-groups but does not compile them; kernels use local memory instead: {error.gist}"
            )
            warnings.warn(message(source, text, device=self.info.name), RuntimeWarning, stacklevel=2)
            return launch

    def _launch(
        self,
        request: KernelRequest,
        signature: KernelSignature,
        parameters: Sequence[Bound],
        items: tuple[int, ...],
        group: tuple[int, ...],
        workspace: tuple[int, ...],
    ) -> Launch:
        """Build the kernel and return its launch. Raises KernelBuildError."""
        kernel = self.programs.kernel(
            request.file,
            request.kernel,
            request.definitions,
            argument_types(signature),
            request.options,
            request.target if request.target and request.target.rewrites else None,
        )
        return KernelLaunch(self, kernel, parameters, items, group, workspace)

    def build_user_kernel(
        self, name: str, file: str, text: str, options: list[str], signature: KernelSignature
    ) -> MakeLaunch:
        """As `BuildsUserKernels.build_user_kernel`."""
        program = self.programs.build_as_written(file, text, options)
        origin = ProgramOrigin(lambda: text, tuple(self.programs.flags(options)))
        compiled = CompiledKernel(program, name, argument_types(signature), origin)
        self._check_local_memory(name, compiled.cl)

        def launch(parameters: Sequence[Bound], items: tuple[int, ...], group: tuple[int, ...]) -> Launch:
            _ = program  # recorded launches need it
            return KernelLaunch(self, compiled, parameters, items, group)

        return launch

    def _check_local_memory(self, name: str, kernel: cl.Kernel) -> None:
        """Raise BackendError if the kernel exceeds the local memory, which ends the process with some drivers."""
        declared, limit = local_bytes(kernel, self.device), self.features.static_local_memory
        if declared > limit:
            raise BackendError(
                message(
                    name,
                    f"the kernel declares {declared} bytes of local memory",
                    expected=f"at most {limit}",
                    fix="make its `__local` arrays smaller",
                    device=self.info.name,
                )
            )

    def start_profiling(self) -> None:
        """Switch to queues that record timestamps, which costs a few microseconds per launch."""
        self.queues.record_timestamps(True)
        self.profile = []

    def stop_profiling(self) -> list[tuple[str, int, int]]:
        """Switch back. Return (name, start, end) of the launches since `start_profiling`, in nanoseconds."""
        self.queues.record_timestamps(False)
        events, self.profile = self.profile or [], None
        if events:  # other threads may have launched since the device was waited for
            with self.waiting():
                cl.wait_for_events([e.event for e in events])
        return [(e.name, int(e.event.profile.start), int(e.event.profile.end)) for e in events]

    def finish(self) -> None:
        """Wait for everything enqueued. Raises the typed error of a command that failed."""
        try:
            with self.waiting():
                self.queues.finish()
        except cl.Error as error:
            raise self.errors.translate(error, "waiting for the device") from error

    def waiting(self) -> AbstractContextManager[None]:
        """Return the context in which a thread waits for the device."""
        return self._waiter.bound() if self._waiter else nullcontext()
