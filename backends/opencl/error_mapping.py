"""OpenCL status codes as Polyhal's typed errors."""

from __future__ import annotations

import pyopencl as cl

from polyhal.hal.errors import BackendError, DeviceLostError, OutOfMemoryError, PolyhalError, message

_MEMORY = frozenset(
    {cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, cl.status_code.OUT_OF_RESOURCES, cl.status_code.OUT_OF_HOST_MEMORY}
)
_LOST = frozenset({cl.status_code.DEVICE_NOT_AVAILABLE, -9999})
"""-9999 is NVIDIA's undocumented code for an illegal access or a hung kernel, after which the context is unusable."""


def translate(error: cl.Error, action: str, device: str) -> PolyhalError:
    """The typed error for a failed call; `action` says what was attempted, with sizes."""
    code = error.code
    name = str(cl.status_code.to_string(code, "status %d"))  # type: ignore[operator]
    text = f"{action} failed with {name}"
    if isinstance(error, cl.MemoryError) or code in _MEMORY:
        return OutOfMemoryError(
            message(
                None,
                text,
                fix="free tensors or use a smaller batch; a work-group that is too large gives the same code",
                device=device,
            )
        )
    if code in _LOST:
        return DeviceLostError(
            message(None, text, fix="restart the process; the device's tensors are gone", device=device)
        )
    return BackendError(message(None, text, device=device))
