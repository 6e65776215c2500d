"""Error mapping: OpenCL status codes as Polyhal's typed errors."""

from __future__ import annotations

import pyopencl as cl

from polyhal.hal.errors import BackendError, DeviceLostError, OutOfMemoryError, PolyhalError, message

_OUT_OF_MEMORY = frozenset(
    {cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, cl.status_code.OUT_OF_RESOURCES, cl.status_code.OUT_OF_HOST_MEMORY}
)
_ILLEGAL_ACCESS = -9999
"""NVIDIA's undocumented code for an illegal access or a hung kernel, after which the context is unusable."""
_LOST = frozenset({cl.status_code.DEVICE_NOT_AVAILABLE, _ILLEGAL_ACCESS})


def translate(error: cl.Error, action: str, device: str) -> PolyhalError:
    """Return the typed error for a failed call. `action` says what was attempted, with sizes."""
    code = error.code
    name = str(cl.status_code.to_string(code, "status %d"))  # type: ignore[operator]
    problem = f"{action} failed with {name}"
    if isinstance(error, cl.MemoryError) or code in _OUT_OF_MEMORY:
        fix = "free tensors or use a smaller batch; a work-group that is too large gives the same code"
        return OutOfMemoryError(message(None, problem, fix=fix, device=device))
    if code in _LOST:
        fix = "restart the process; the device's tensors are gone"
        return DeviceLostError(message(None, problem, fix=fix, device=device))
    return BackendError(message(None, problem, device=device))
