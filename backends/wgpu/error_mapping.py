"""Error mapping: wgpu's exceptions as Polyhal's typed errors."""

from __future__ import annotations

from polyhal.hal.errors import BackendError, DeviceLostError, OutOfMemoryError, PolyhalError, message


def translate(error: Exception, op: str | None, action: str, device: str) -> PolyhalError:
    """Return the typed error for a failed call. `action` says what was attempted, with sizes."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    problem = f"{action} failed with {kind}: {text}"
    if "OutOfMemory" in kind or "not enough memory" in text.lower() or "out of memory" in text.lower():
        return OutOfMemoryError(message(op, problem, fix="free tensors or use a smaller batch", device=device))
    if "lost" in text.lower():
        fix = "restart the process; the device's tensors are gone"
        return DeviceLostError(message(op, problem, fix=fix, device=device))
    return BackendError(message(op, problem, device=device))
