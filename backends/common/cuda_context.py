"""A device's primary context, which all libraries of the process that use CUDA share."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from polyhal.backends.common.cuda_driver import NULL, CudaDriver, ffi

_NOT_CURRENT = (201, 400)
"""Statuses of calls on a thread with no current context or another one: CUDA_ERROR_INVALID_CONTEXT, ..._INVALID_HANDLE."""


class PrimaryContext:
    """The primary context of one device: `with context:` makes it current on the calling thread, then restores the previous."""

    def __init__(self, driver: CudaDriver, device: int) -> None:
        """Open the context, which occupies device memory. Raises CudaError."""
        self.driver = driver
        self.device = device
        self.handle = driver.value("cuDevicePrimaryCtxRetain", "CUcontext *", device)
        self._push: Any = driver.lib.cuCtxPushCurrent_v2
        self._pop: Any = driver.lib.cuCtxPopCurrent_v2
        self._popped = ffi.new("CUcontext *")
        self._current: Any = driver.lib.cuCtxGetCurrent
        self._bytes = bytes(ffi.buffer(ffi.new("CUcontext *", self.handle)))
        self._places: list[tuple[Any, Any]] = []
        """Places for a context, with their bytes, that no call uses at the moment."""

    def __enter__(self) -> None:
        if status := self._push(self.handle):
            raise self.driver.error("cuCtxPushCurrent_v2", status)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pop(self._popped)

    def is_current(self) -> bool:
        """Return whether the context is current on the calling thread: less work than to make it so."""
        try:
            found = self._places.pop()
        except IndexError:
            place = ffi.new("CUcontext *")
            found = place, ffi.buffer(place)
        place, content = found
        known = not self._current(place) and content[:] == self._bytes
        self._places.append(found)
        return known

    def status(self, function: Any, *args: Any) -> int:
        """Call a function that names a stream of this context, to launch a kernel or to wait. Return the driver's status.

        Drivers need no current context for that, or refuse the call: then it is made again with this one. The context stays
        current on a thread that had none if the CUDA runtime would choose this device there too.
        """
        status = int(function(*args))
        if status in _NOT_CURRENT:
            if self.device == 0 and self.driver.value("cuCtxGetCurrent", "CUcontext *") == NULL:
                self.driver.call("cuCtxSetCurrent", self.handle)
            with self:
                status = int(function(*args))
        return status
