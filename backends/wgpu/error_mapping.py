"""Error mapping: wgpu's exceptions as Polyhal's typed errors, each with its cause and what to do.

The library reports by exceptions whose texts are for people. What is looked for in them is what WebGPU's implementations have
in common.
"""

from __future__ import annotations

from typing import NamedTuple

from polyhal.backends.common.lost_devices import REOPEN
from polyhal.hal.errors import BackendError, DeviceLostError, OutOfMemoryError, PolyhalError, message


class _Cause(NamedTuple):
    """What an exception means if its class or text contains one of some words, in lower case."""

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
    """Makes the errors of one device, and remembers its loss."""

    def __init__(self, device: str) -> None:
        """`device` is its name."""
        self.device = device
        self.lost = ""
        """What was the first sign that the device is gone; empty as long as it is there."""

    def translate(self, error: Exception, op: str | None, action: str) -> PolyhalError:
        """Return the typed error for a failed call. `action` says what was attempted, with sizes."""
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
