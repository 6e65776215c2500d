"""Constant memory of launches, such as tables of offsets."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.backends.common.cuda_context import PrimaryContext
from polyhal.backends.common.cuda_driver import ffi


class ConstantMemory:
    """Device memory with fixed contents, released with this object."""

    __slots__ = ("_context", "_stream", "address")

    def __init__(self, context: PrimaryContext, stream: Any, array: np.ndarray) -> None:
        """Copy `array` to the device and wait for it. The context must be current. Raises CudaError."""
        self._context = context
        self._stream = stream
        driver = context.driver
        self.address = int(driver.value("cuMemAllocAsync", "CUdeviceptr *", array.nbytes, stream))
        source = ffi.cast("void *", array.ctypes.data)
        driver.call("cuMemcpyHtoDAsync_v2", self.address, source, array.nbytes, stream)
        driver.call("cuStreamSynchronize", stream)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            with self._context:
                self._context.driver.lib.cuMemFreeAsync(self.address, self._stream)
