"""The open device: context, streams and programs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.cuda_context import PrimaryContext
from polyhal.backends.common.cuda_driver import NULL, CudaDriver, CudaError, ffi
from polyhal.backends.common.launching.kernel_arguments import Bound
from polyhal.backends.common.launching.kernel_signature import KernelSignature
from polyhal.backends.common.launching.launch_recorder import LaunchRecorder
from polyhal.backends.cuda.compiler import KernelCompiler
from polyhal.backends.cuda.errors import CudaErrors
from polyhal.backends.cuda.events import NativeEvent, recorded
from polyhal.backends.cuda.grids import must_fold
from polyhal.backends.cuda.launch import CudaLaunch
from polyhal.backends.cuda.profile import TimedCudaLaunch
from polyhal.backends.cuda.programs import CudaPrograms
from polyhal.backends.cuda.streams import CudaStream, CudaStreams
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.runtime import KernelRequest, Runtime
from polyhal.backends.opencl_c.user_kernel import MakeLaunch
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.core.kernels.tuning import Tuning
from polyhal.hal.protocol import Launch

if TYPE_CHECKING:
    from polyhal.backends.cuda.launch import CudaBoundLaunch, PreparedLaunch

_WAITING_KERNELS = ("collective/", "recurrent/")
"""Folders of kernels whose groups wait for each other, or for other devices."""


class CudaRuntime(Runtime):
    """An open device with its streams."""

    def __init__(
        self,
        driver: CudaDriver,
        ordinal: int,
        compiler: KernelCompiler | None,
        info: DeviceInfo,
        features: KernelFeatures,
        capabilities: Capabilities,
        tuning: Tuning,
    ) -> None:
        """`compiler` is None on a machine without one, where only cached programs run. Raises a typed error."""
        super().__init__(info, features, capabilities, tuning)
        self.driver = driver
        self.ordinal = ordinal
        self.errors = CudaErrors(info.name)
        try:
            self.context = PrimaryContext(driver, ordinal)
            self.streams = CudaStreams(self.context)
        except CudaError as error:
            raise self.errors.translate(error, "opening the device") from error
        self.programs: CudaPrograms = CudaPrograms(self.context, self.errors, compiler, lambda: self.features, info)
        self.profile: list[TimedCudaLaunch] | None = None
        """Launches while profiling is on, else None."""
        self._start: Any = driver.lib.cuLaunchKernelEx
        self._profile_start: NativeEvent | None = None
        self.recorder: LaunchRecorder[CudaBoundLaunch] | None = None
        """Receives launches instead of the stream while a command buffer is recorded."""
        self.recording = threading.Lock()

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
        folded = must_fold(items, group)
        kernel = self.programs.kernel(
            request.file, request.kernel, request.definitions, request.options, request.target, folded=folded
        )
        waits = request.file.startswith(_WAITING_KERNELS)
        return CudaLaunch(self, kernel, parameters, items, group, workspace, waits=waits)

    def build_user_kernel(
        self, name: str, file: str, text: str, options: list[str], signature: KernelSignature
    ) -> MakeLaunch:
        """As `BuildsUserKernels.build_user_kernel`."""
        built = {False: self.programs.build(file, text, options).kernel(name)}

        def launch(parameters: Sequence[Bound], items: tuple[int, ...], group: tuple[int, ...]) -> Launch:
            if (folded := must_fold(items, group)) not in built:
                built[folded] = self.programs.build(file, text, options, folded=folded).kernel(name)
            return CudaLaunch(self, built[folded], parameters, items, group, waits=True)

        return launch

    def start(self, launch: PreparedLaunch, stream: CudaStream) -> None:
        """Launch a kernel. Raises the typed error of a refused launch."""
        config = launch.config
        if launch.stream is not stream or stream.waits:
            launch.stream = None  # stays so after an interrupt
            config.stream = stream.handle
            launch.stream = stream
        if self.profile is None:
            status = self._start(config, launch.function, launch.pointers, NULL)
            if status:  # refused launches are tried again with the device current, which it mostly is
                status = self.context.status(self._start, config, launch.function, launch.pointers, NULL)
        else:
            with self.calling(f"launching {launch.name}"), self.profiled(launch.name, stream, launch):
                status = self._start(config, launch.function, launch.pointers, NULL)
        if status:
            raise self.errors.translate(self.driver.error("cuLaunchKernelEx", status), f"launching {launch}")

    def calling(self, action: str) -> AbstractContextManager[None]:
        """Make the device current; failed calls of the driver raise their typed error, which names the action."""
        return _Calling(self.context, self.errors, action)

    def finish(self) -> None:
        """Wait for everything enqueued. Raises the typed error of a command that failed."""
        try:
            self.streams.synchronize()
        except CudaError as error:
            raise self.errors.translate(error, "waiting for the device") from error

    @contextmanager
    def profiled(self, name: str, stream: CudaStream, launch: PreparedLaunch | None = None) -> Iterator[None]:
        """Record timestamps around the commands of the block, if profiling is on. The context must be current."""
        profile = self.profile
        if profile is None:
            yield
            return
        start = recorded(self.context, stream.handle, _TIMED)
        yield
        profile.append(
            TimedCudaLaunch(name, start, recorded(self.context, stream.handle, _TIMED), launch, threading.get_ident())
        )

    def start_profiling(self) -> None:
        """Record timestamps for every later launch, which costs some microseconds each."""
        self.finish()
        with self.calling("recording a timestamp"):
            self._profile_start = recorded(self.context, self.streams.own.handle, _TIMED)
        self.profile = []

    def stop_profiling(self) -> list[tuple[str, int, int]]:
        """Return (name, start, end) of the launches since `start_profiling`, in nanoseconds."""
        self.finish()
        launches, self.profile = self.profile or [], None
        first, self._profile_start = self._profile_start, None
        if first is None:
            return []
        with self.calling("reading timestamps"):
            starts = [self._nanoseconds(first, launch.start) for launch in launches]
            lengths = [self._nanoseconds(launch.start, launch.end) for launch in launches]
        return [(launch.name, at, at + n) for launch, at, n in zip(launches, starts, lengths, strict=True)]

    def _nanoseconds(self, start: NativeEvent, end: NativeEvent) -> int:
        """Return the time between two events, which the driver reports in milliseconds as a float."""
        out = ffi.new("float *")
        self.driver.call("cuEventElapsedTime", out, start.handle, end.handle)
        return round(1e6 * float(out[0]))


class _Calling(AbstractContextManager[None]):
    """The context of `CudaRuntime.calling`. A generator would cost more than the calls of the driver."""

    __slots__ = ("_action", "_context", "_errors")

    def __init__(self, context: PrimaryContext, errors: CudaErrors, action: str) -> None:
        self._context = context
        self._errors = errors
        self._action = action

    def __enter__(self) -> None:
        try:
            self._context.__enter__()
        except CudaError as error:
            raise self._errors.translate(error, self._action) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.__exit__(kind, error, trace)
        if isinstance(error, CudaError):
            raise self._errors.translate(error, self._action) from error


_TIMED = 0
"""Flags of an event with a timestamp."""
