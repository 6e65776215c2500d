"""Convolutions."""

from __future__ import annotations

import math
from typing import Any

import polyhal as ph
from polyhal.nn import functional
from polyhal.onnx.registration import Value, operator
from polyhal.onnx.table.window_places import windows
from polyhal.tensor import Tensor

_FORWARD = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


@operator("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    places = windows(x.shape[2:], weight.shape[2:], auto_pad, pads, strides, dilations)
    function = _FORWARD[len(places.kernel)]
    if places.symmetric:
        return function(x, weight, bias, places.strides, places.before, places.dilations, group)
    return function(places.padded(x, 0.0, extra=False), weight, bias, places.strides, 0, places.dilations, group)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    axes = x.ndim - 2
    stride, dilation = strides or [1] * axes, dilations or [1] * axes
    added = output_padding or [0] * axes
    spans = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilation, strict=True)]
    whole = [(n - 1) * s + w for n, s, w in zip(x.shape[2:], stride, spans, strict=True)]
    padding = list(pads or [0] * (2 * axes))
    if output_shape or auto_pad.startswith("SAME"):
        wanted = output_shape[-axes:] if output_shape else [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
        totals = [w + a - o for w, a, o in zip(whole, added, wanted, strict=True)]
        small, rest = [t // 2 for t in totals], [t - t // 2 for t in totals]
        padding = small + rest if auto_pad == "SAME_UPPER" else rest + small
    before, after = padding[:axes], padding[axes:]
    results = [w + a - b - e for w, a, b, e in zip(whole, added, before, after, strict=True)]
    function = _TRANSPOSED[axes]
    if (
        before == after
        and min(before) >= 0
        and all(a < max(s, d) for a, s, d in zip(added, stride, dilation, strict=True))
    ):
        return function(x, weight, bias, tuple(stride), tuple(before), tuple(added), group, tuple(dilation))
    out = function(x, weight, None, tuple(stride), 0, 0, group, tuple(dilation))
    for axis, (b, n) in enumerate(zip(before, results, strict=True), 2):
        begin, missing = max(b, 0), (max(-b, 0), max(b + n - out.shape[axis], 0))
        out = ph.narrow(out, axis, begin, min(n - missing[0], out.shape[axis] - begin))
        if any(missing):
            out = ph.pad(out, [missing if a == axis else (0, 0) for a in range(out.ndim)], 0.0)
    return out if bias is None else out + ph.reshape(bias, (-1, *[1] * axes))


@operator("Col2Im", host=("image_shape", "block_shape"))
def col2im(
    x: Tensor,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    image, block = [int(n) for n in image_shape], [int(n) for n in block_shape]
    places = windows(image, block, "NOTSET", pads, strides, dilations)
    count = math.prod(block)
    batch, channels = x.shape[0], x.shape[1] // count
    parts = ph.reshape(x, (batch, channels, *block, *places.results))
    total = ph.zeros(
        (batch, channels, *(n + b + a for n, b, a in zip(image, places.before, places.after, strict=True))),
        dtype=x.dtype,
        device=x.device,
    )
    steps = (block, places.strides, places.dilations, places.results)
    for place in _places(block):
        widths, taken = [(0, 0), (0, 0)], parts[(slice(None), slice(None), *place)]
        for axis, (p, s, d, r) in enumerate(zip(place, *steps[1:], strict=True), 2):
            taken = _spread(taken, axis, s)
            length = (r - 1) * s + 1
            widths.append((p * d, total.shape[axis] - p * d - length))
        total = total + ph.pad(taken, widths, 0.0)
    for axis, (b, n) in enumerate(zip(places.before, image, strict=True), 2):
        total = ph.narrow(total, axis, b, n)
    return total


def _places(block: list[int]) -> Any:
    import itertools

    return itertools.product(*map(range, block))


def _spread(x: Tensor, axis: int, stride: int) -> Any:
    """Put `stride - 1` zeros between the elements of an axis."""
    if stride == 1:
        return x
    n = x.shape[axis]
    wide = ph.pad(ph.unsqueeze(x, axis + 1), [(0, stride - 1 if a == axis + 1 else 0) for a in range(x.ndim + 1)], 0.0)
    shape = (*x.shape[:axis], n * stride, *x.shape[axis + 1 :])
    return ph.narrow(ph.reshape(wide, shape), axis, 0, (n - 1) * stride + 1)
