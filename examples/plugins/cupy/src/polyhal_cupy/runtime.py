"""The open device: stream, programs and cuBLAS. Lowering functions build launches with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
from cupy.cuda import runtime as cuda

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.kernel_arguments import bind
from polyhal.backends.common.launching.launch import Arguments
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal_cupy import error_mapping
from polyhal_cupy.blas import Blas
from polyhal_cupy.capabilities import capabilities
from polyhal_cupy.launch import KernelLaunch, LoadedKernel
from polyhal_cupy.program import ProgramStore


class Runtime:
    """One device and its only stream, which does not synchronize with CUDA's default stream."""

    def __init__(self, number: int, info: DeviceInfo) -> None:
        self.number = number
        self.info = info
        properties: dict[str, Any] = cuda.getDeviceProperties(number)
        self.capabilities: Capabilities = capabilities(properties)
        self.units: int = properties["multiProcessorCount"]
        try:
            cuda.setDevice(number)
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.blas = Blas(self.stream)
        except error_mapping.ERRORS as error:
            raise error_mapping.translate(error, "opening the device", info.name) from error
        self.programs = ProgramStore(10 * properties["major"] + properties["minor"], info.name)
        self._profile: list[tuple[str, cupy.cuda.Event, cupy.cuda.Event]] | None = None
        self._origin: cupy.cuda.Event | None = None

    def launch(
        self,
        name: str,
        source: str,
        definitions: Definitions,
        args: Arguments,
        blocks: int,
        threads: int,
        *,
        kernel: str = "",
        workspace: tuple[int, ...] = (),
    ) -> KernelLaunch:
        """Return a launch of `kernel` (by default named like the file) from kernels/`source`.cu.

        `args` binds every parameter of the kernel by name. Raises KernelBuildError, and KernelArgumentError if `args` do
        not fit the kernel.
        """
        loaded = self.kernel(source, definitions, kernel)
        parameters = bind(loaded.signature, args, offsets=False)
        return KernelLaunch(self, name, loaded.function, parameters, blocks, threads, workspace)

    def kernel(self, source: str, definitions: Definitions, kernel: str = "") -> LoadedKernel:
        """Return a kernel (by default named like the file) of kernels/`source`.cu. Raises KernelBuildError."""
        cuda.setDevice(self.number)
        file, name = f"{source}.cu", kernel or source.rpartition("/")[2]
        signature = self.programs.signature(file, name, definitions)
        return LoadedKernel(self.programs.function(file, name, definitions), signature)

    def enqueue(
        self, name: str, function: Any, blocks: tuple[int, ...], threads: tuple[int, ...], values: Sequence[Any]
    ) -> None:
        """Launch a kernel on the stream. Raises typed errors with the kernel's name."""
        try:
            # The current device is per thread, and the calling thread may have used another one.
            cuda.setDevice(self.number)
            if self._profile is None:
                function(blocks, threads, values, 0, self.stream)
                return
            with self._timed(name):
                function(blocks, threads, values, 0, self.stream)
        except error_mapping.ERRORS as error:
            action = f"launching {name} with {blocks[0]} blocks of {threads[0]} threads"
            raise error_mapping.translate(error, action, self.info.name) from error

    def call(self, name: str, work: Any) -> None:
        """Call `work`, which enqueues a library's work on the stream, with the device current."""
        try:
            cuda.setDevice(self.number)
            # CuPy's libraries use the current stream of the calling thread.
            with self.stream:
                if self._profile is None:
                    work()
                    return
                with self._timed(name):
                    work()
        except error_mapping.ERRORS as error:
            raise error_mapping.translate(error, f"calling {name}", self.info.name) from error

    def _timed(self, name: str) -> _Timed:
        assert self._profile is not None
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        self._profile.append((name, begin, end))
        return _Timed(self.stream, begin, end)

    def start_profiling(self) -> None:
        """Time all later launches."""
        cuda.setDevice(self.number)
        self.finish()
        self._origin = cupy.cuda.Event()
        self._origin.record(self.stream)
        self._profile = []

    def stop_profiling(self) -> list[tuple[str, int, int]]:
        """Return (kernel, start, end) of every launch since `start_profiling`, in nanoseconds; the resolution is 500 ns."""
        self.finish()
        events, self._profile = self._profile or [], None
        origin = self._origin

        def nanoseconds(event: Any) -> int:
            return int(cupy.cuda.get_elapsed_time(origin, event) * 1e6)

        return [(name, nanoseconds(begin), nanoseconds(end)) for name, begin, end in events]

    def finish(self) -> None:
        """Wait for all enqueued work. Raises the typed error of work that failed."""
        try:
            cuda.setDevice(self.number)
            self.stream.synchronize()
        except error_mapping.ERRORS as error:
            raise error_mapping.translate(error, "waiting for the device", self.info.name) from error


class _Timed:
    """Context manager that records events around enqueued work."""

    __slots__ = ("_begin", "_end", "_stream")

    def __init__(self, stream: Any, begin: Any, end: Any) -> None:
        self._stream, self._begin, self._end = stream, begin, end

    def __enter__(self) -> None:
        self._begin.record(self._stream)

    def __exit__(self, *_: object) -> None:
        self._end.record(self._stream)
