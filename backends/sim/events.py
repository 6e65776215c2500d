"""Events: host handles of completion signals."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.completion import Callback, run_callback
from polyhal.backends.sim.event_log import Action
from polyhal.hal.errors import TransferError, message

if TYPE_CHECKING:
    from polyhal.backends.sim.driver import SimDriver
    from polyhal.backends.sim.gpu import SimulatedGPU
    from polyhal.backends.sim.host_queue import HostQueue


class SimEvent:
    """A point in the work of a queue. Implements `polyhal.hal.protocol.CompletionEvent`."""

    def __init__(self, driver: SimDriver) -> None:
        """Acquire a signal. The driver sets queue and position when it writes the command that completes the event."""
        self._driver = driver
        self.signal = driver.gpu.signals.acquire()
        self.sequence = 0
        self.queue: HostQueue | None = None
        """Queue of the command."""
        self.position = 0
        """Number of packets of the queue up to the command."""
        self.submitted_ns = 0
        """Host time of the submission."""

    @property
    def gpu(self) -> SimulatedGPU:
        """Device that completes the event."""
        return self._driver.gpu

    def __del__(self) -> None:
        """Release the signal. The driver keeps events of pending commands alive, so the device has already written it."""
        self._driver.gpu.signals.release(self.signal)

    def wait(self) -> None:
        """Block until all work before the event is done. Raises the typed error of work that failed."""
        self._driver.wait(self)
        error = self.damage()
        if error is not None:
            raise error

    def is_complete(self) -> bool:
        """Return whether all work before the event is done, or the device has halted."""
        gpu = self._driver.gpu
        return gpu.signals.is_done(self.signal) or gpu.is_halted

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` from the interrupt of the event, or at once if the event is already complete."""
        gpu = self._driver.gpu

        def handler() -> None:
            self._log_callback()
            fatal = not gpu.signals.is_done(self.signal)
            run_callback(callback, gpu.failure_before(self.sequence, fatal=fatal) or self.damage())

        self._driver.flush()
        if not gpu.when_done(self.signal, handler):
            handler()

    def damage(self) -> Exception | None:
        """Return an error if the transferred data are damaged."""
        return None

    def _log_callback(self) -> None:
        gpu = self._driver.gpu
        if gpu.log is not None:
            end = gpu.signals.read(self.signal).end_ns
            text = f"of signal {self.signal}"
            gpu.log.add(Action.CALLBACK, text, device=gpu.name, lane="interrupts", start_ns=end, sequence=self.sequence)


class ReadEvent(SimEvent):
    """The end of a copy to the host, with a checksum of its bytes."""

    def __init__(self, driver: SimDriver, target: memoryview) -> None:
        super().__init__(driver)
        self._target = target

    def damage(self) -> Exception | None:
        """Compare the device's checksum with the checksum of the received bytes."""
        gpu = self._driver.gpu
        if not gpu.signals.is_done(self.signal) or gpu.signals.read(self.signal).value == zlib.crc32(self._target):
            return None
        problem = f"a transfer of {self._target.nbytes} bytes from the device arrived with a wrong checksum"
        return TransferError(message(None, problem, fix="read it again", device=gpu.name))
