"""The event of a copy by CUDA, for the framework."""

from __future__ import annotations

import threading

from polyhal.backends.common.launching.completion import Callback, run_callback
from polyhal.backends.opencl.peers.cuda_driver import CudaError, CudaEvent
from polyhal.hal.errors import BackendError, message


class CudaCopy:
    """A copy between two devices. Implements `polyhal.hal.protocol.CompletionEvent`."""

    def __init__(self, event: CudaEvent, nbytes: int, device: str) -> None:
        """`device` is the name of the one that receives."""
        self._event = event
        self._nbytes = nbytes
        self._device = device

    def wait(self) -> None:
        """Block until the copy is done. Raises BackendError if it failed."""
        try:
            self._event.wait()
        except CudaError as error:
            raise copy_error(error, self._nbytes, self._device) from error

    def is_complete(self) -> bool:
        """Return whether the copy is done, without blocking."""
        return self._event.is_complete()

    def add_callback(self, callback: Callback) -> None:
        """Call `callback` when the copy is done. Few copies have one, so that each gets a thread that waits."""
        if self.is_complete():
            self._call(callback)
        else:
            threading.Thread(target=self._call, args=(callback,), name="peer copy", daemon=True).start()

    def _call(self, callback: Callback) -> None:
        failure: BackendError | None = None
        try:
            self.wait()
        except BackendError as error:
            failure = error
        run_callback(callback, failure)


def copy_error(error: CudaError, nbytes: int, device: str) -> BackendError:
    """Return the typed error of a copy that failed."""
    problem = f"copying {nbytes} bytes from another device failed: {error}"
    return BackendError(message(None, problem, fix="run `nvidia-smi` to see whether both cards work", device=device))
