"""Constant memory of launches, such as tables of offsets."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from polyhal.backends.common.cuda_context import PrimaryContext
from polyhal.backends.common.cuda_driver import CudaError, ffi

if TYPE_CHECKING:
    from polyhal.backends.cuda.streams import CudaStreams


class ConstantMemory:
    """Device memory with fixed contents, released with this object."""

    __slots__ = ("_context", "_streams", "address")

    def __init__(self, context: PrimaryContext, streams: CudaStreams, array: np.ndarray) -> None:
        """Copy `array` to the device and wait for it. The context must be current. Raises CudaError."""
        self._context = context
        self._streams = streams
        driver, stream = context.driver, streams.own.handle
        self.address = int(driver.value("cuMemAllocAsync", "CUdeviceptr *", array.nbytes, stream))
        source = ffi.cast("void *", array.ctypes.data)
        driver.call("cuMemcpyHtoDAsync_v2", self.address, source, array.nbytes, stream)
        driver.call("cuStreamSynchronize", stream)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            # A lost device needs no release.
            with contextlib.suppress(CudaError), self._context:
                self._streams.release(self.address)
