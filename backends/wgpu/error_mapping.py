"""Error mapping: wgpu's exceptions as Polyhal's typed errors, with cause and remedy.

The library raises exceptions with free text. The patterns are words that all WebGPU implementations use.
"""

from __future__ import annotations

from typing import NamedTuple

from polyhal.backends.common.lost_devices import REOPEN
from polyhal.hal.errors import BackendError, DeviceLostError, OutOfMemoryError, PolyhalError, message


class _Cause(NamedTuple):
    """Error type and remedy of exceptions whose class or text contains one of `words`, in lower case."""

    words: tuple[str, ...]
    error: type[PolyhalError]
    fix: str


_CAUSES = (
    _Cause(
        ("outofmemory", "not enough memory", "out of memory"),
        OutOfMemoryError,
        "drop tensors that are no longer needed, or use a smaller batch",
    ),
    _Cause(("lost",), DeviceLostError, REOPEN),
    _Cause(
        ("workgroup", "dispatch group size", "invocations"),
        BackendError,
        "the kernel exceeds a limit of the adapter: report this with the output of `polyhal doctor`",
    ),
    _Cause(
        ("max_buffer_size", "maxbuffersize", "binding size", "buffer size"),
        OutOfMemoryError,
        "a tensor is larger than the adapter allows in one piece: use a smaller batch",
    ),
)
_OTHER = _Cause((), BackendError, "update the driver and wgpu, or report this with the output of `polyhal doctor`")


class AdapterErrors:
    """Translates the errors of one device, and records its loss."""

    def __init__(self, device: str) -> None:
        """Translate errors of the device named `device`."""
        self.device = device
        self.lost = ""
        """First error that reported the loss of the device; empty while it works."""

    def translate(self, error: Exception, op: str | None, action: str) -> PolyhalError:
        """Return the typed error for a failed call. `action` describes the attempt, with sizes."""
        text = " ".join(str(error).split())
        kind = type(error).__name__
        problem, searched = f"{action} failed with {kind}: {text}", f"{kind} {text}".lower()
        cause = next((c for c in _CAUSES if any(word in searched for word in c.words)), _OTHER)
        if self.lost:
            problem = f"the device was lost when {self.lost}"
            return DeviceLostError(message(op, problem, fix=REOPEN, device=self.device))
        if cause.error is DeviceLostError:
            self.lost = problem
        return cause.error(message(op, problem, fix=cause.fix, device=self.device))
