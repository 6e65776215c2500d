"""Launches: kernels with their operands, enqueued at once or recorded for a command buffer."""

from __future__ import annotations

import threading
from typing import Any

from polyhal.backends.common.launching.launch_recorder import LaunchRecorder
from polyhal.backends.sim.driver import SimDriver
from polyhal.backends.sim.kernel_arguments import encode_arguments
from polyhal.backends.sim.packets import Dispatch

KernelCall = tuple[int, tuple[Any, ...]]
"""Number of a kernel, and its arguments."""


class KernelLauncher:
    """Launches the kernels of one device."""

    def __init__(self, driver: SimDriver) -> None:
        self._driver = driver
        self.recorder: LaunchRecorder[KernelCall] | None = None
        self.recording = threading.Lock()

    def is_recording(self) -> bool:
        """Return whether launches of the calling thread are recorded."""
        return self.recorder is not None and self.recorder.accepts()

    def launch(self, kernel: int, arguments: tuple[Any, ...]) -> None:
        """Enqueue a kernel, or record it. Arguments are references, numbers and None, inputs first."""
        recorder = self.recorder
        if recorder is not None and recorder.accepts():
            recorder.add((kernel, arguments))
            return
        address = self._driver.gpu.pinned_memory.pin(encode_arguments(arguments))
        self._driver.submit(
            lambda header: Dispatch(header, kernel, address, len(arguments)), pinned=address, profiled=1
        )


class SimLaunch:
    """A launch of one kernel. Implements `polyhal.hal.protocol.Launch`."""

    __slots__ = ("_kernel", "_launcher", "name", "workspace")

    def __init__(self, launcher: KernelLauncher, kernel: int, name: str) -> None:
        """Prepare a launch; `kernel` is the number of a loaded kernel."""
        self._launcher = launcher
        self._kernel = kernel
        self.name = name
        self.workspace: tuple[int, ...] = ()

    def __call__(self, *args: Any) -> None:
        self._launcher.launch(self._kernel, args)
