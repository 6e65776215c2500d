"""Shape arithmetic of sliding windows in two dimensions, for convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import Specs

Pair = tuple[int, int]
"""One number per spatial axis."""


def pair(value: Sequence[int], name: str, low: int) -> Pair:
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


def window_params(params: dict[str, Any]) -> tuple[Pair, Pair, Pair, int]:
    """Return stride, padding, dilation and groups of a convolution, also written to `params`. Raises ValueError."""
    params["stride"], params["padding"] = pair(params["stride"], "stride", 1), pair(params["padding"], "padding", 0)
    params["dilation"] = pair(params["dilation"], "dilation", 1)
    if not isinstance(params["groups"], int) or params["groups"] < 1:
        raise ValueError(f"groups is {params['groups']}; expected a positive integer")
    return params["stride"], params["padding"], params["dilation"], params["groups"]


def convolution_shape(x: tuple[int, ...], weight: tuple[int, ...], params: dict[str, Any]) -> tuple[int, ...]:
    """Return the shape of a convolution's result. Raises ValueError if `weight` does not fit `x`."""
    stride, padding, dilation, groups = window_params(params)
    if len(x) != 4 or len(weight) != 4:
        raise ValueError(f"x {x} and weight {weight}; expected (N, C, H, W) and (K, C/groups, R, S)")
    if x[1] != weight[1] * groups or weight[0] % groups:
        raise ValueError(
            f"x {x} does not fit weight {weight} with {groups} groups; "
            f"expected C = {weight[1] * groups} and K a multiple of groups"
        )
    return (
        x[0],
        weight[0],
        *(output_length(*v) for v in zip(x[2:], weight[2:], stride, padding, dilation, strict=True)),
    )
