"""Error mapping from the CUDA libraries to Polyhal's typed errors."""

from __future__ import annotations

from cupy.cuda import cublas, driver, memory, runtime

from polyhal.hal.errors import BackendError, DeviceLostError, OutOfMemoryError, PolyhalError, message

ERRORS = (runtime.CUDARuntimeError, driver.CUDADriverError, cublas.CUBLASError, memory.OutOfMemoryError)
"""Exceptions that CuPy raises. The status codes used here are equal in the runtime and the driver."""
_MEMORY = 2
_CUBLAS_MEMORY = 3
_LOST = frozenset({4, 46, 201, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
"""Status codes after which the context is unusable: illegal access, time-out, failed launch, uncorrectable memory, and
similar."""


def translate(error: Exception, action: str, device: str) -> PolyhalError:
    """Return the typed error for a failed call; `action` describes the attempt, with sizes."""
    status, of_cublas = getattr(error, "status", None), isinstance(error, cublas.CUBLASError)
    text = f"{action} failed with {error}"
    if isinstance(error, memory.OutOfMemoryError) or status == (_CUBLAS_MEMORY if of_cublas else _MEMORY):
        return OutOfMemoryError(message(None, text, fix="free tensors or use a smaller batch", device=device))
    if status in _LOST and not of_cublas:
        fix = "restart the process; the device's tensors are gone"
        return DeviceLostError(message(None, text, fix=fix, device=device))
    return BackendError(message(None, text, device=device))
