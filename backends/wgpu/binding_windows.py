"""Windows of buffers that exceed the maximum binding size."""

from __future__ import annotations

from polyhal.hal.errors import BackendError, message
from polyhal.hal.layout import Ref

_ALIGNMENT = 256
"""Alignment of bindings in bytes."""


def window_start(ref: Ref, limit: int, kernel: str, device: str) -> int:
    """Return the start in bytes of a window of `limit` bytes that covers an operand.

    Raises BackendError, with kernel and device, if the operand does not fit.
    """
    low, high = _extent(ref)
    start = low // _ALIGNMENT * _ALIGNMENT
    if high - start > limit:
        raise BackendError(
            message(
                kernel,
                f"an operand spans {(high - low) / 2**20:.0f} MiB of one buffer",
                expected=f"at most {limit / 2**20:.0f} MiB, the size limit of bindings",
                fix="process the tensor in parts",
                device=device,
            )
        )
    return start


def _extent(ref: Ref) -> tuple[int, int]:
    """Return the byte range of a reference in its buffer: first, and one past the last."""
    spans = [(n - 1) * s for n, s in zip(ref.shape, ref.strides, strict=True)]
    low = ref.offset + sum(s for s in spans if s < 0)
    high = ref.offset + sum(s for s in spans if s > 0) + 1
    return low * ref.dtype.itemsize, high * ref.dtype.itemsize
