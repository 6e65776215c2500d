"""Shape arithmetic of sliding windows in two dimensions, for convolution and pooling."""

from __future__ import annotations

from typing import Any

from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import Specs

Pair = tuple[int, int]
"""One number per spatial axis."""


def pair(value: Any, name: str, low: int) -> Pair:
    """One number for both axes, or one for each. Raises ValueError for anything below `low`."""
    out = (value, value) if isinstance(value, int) else tuple(value)
    if len(out) != 2 or any(not isinstance(v, int) or v < low for v in out):
        raise ValueError(f"{name} is {value}; expected one or two integers of at least {low}")
    return out[0], out[1]


def output_length(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool = False) -> int:
    """The number of windows along an axis of length `n`. Raises ValueError if none fits.

    With `ceil_mode`, one more that reaches beyond the padding, if it begins in the axis or before it.
    """
    span = (kernel - 1) * dilation + 1
    room = n + 2 * padding - span
    if room < 0 and not (ceil_mode and room > -stride):
        raise ValueError(f"a window of {span} does not fit in an axis of {n} with padding {padding}")
    out = (room + stride - 1 if ceil_mode else room) // stride + 1
    return out - 1 if ceil_mode and (out - 1) * stride >= n + padding else out


def require_floats(op: str, specs: Specs) -> None:
    """Raise UnsupportedDTypeError unless all tensors hold floats."""
    for spec in specs:
        if isinstance(spec, Spec) and not spec.dtype.is_floating_point:
            problem = f"got {spec.dtype.name}"
            raise UnsupportedDTypeError(message(op, problem, expected="floats", fix="cast with .to(dtype)"))
