"""Shape arithmetic of sliding windows in two dimensions, for convolution and pooling."""

from __future__ import annotations

from typing import Any

Pair = tuple[int, int]
"""One number per spatial axis."""


def pair(value: Any, name: str, low: int) -> Pair:
    """One number for both axes, or one for each. Raises ValueError for anything below `low`."""
    out = (value, value) if isinstance(value, int) else tuple(value)
    if len(out) != 2 or any(not isinstance(v, int) or v < low for v in out):
        raise ValueError(f"{name} is {value}; expected one or two integers of at least {low}")
    return out[0], out[1]


def output_length(n: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """The number of windows along an axis of length `n`. Raises ValueError if none fits."""
    span = (kernel - 1) * dilation + 1
    if n + 2 * padding < span:
        raise ValueError(f"a window of {span} does not fit in an axis of {n} with padding {padding}")
    return (n + 2 * padding - span) // stride + 1
