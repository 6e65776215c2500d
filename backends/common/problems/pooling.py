"""Pooling problems: lengths and strides for the kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


@dataclass(frozen=True, slots=True)
class Pooling:
    """The output has `planes` planes of `pixels` elements, `channels` of them per image of the batch."""

    dtype: DType
    """Dtype of the images."""
    planes: int
    pixels: int
    channels: int
    lengths: tuple[int, ...]
    """Height and width of image, pooled image, kernel, stride, padding and dilation."""
    strides: tuple[int, ...]
    """Four strides per input: image, channel, row, column."""


def describe(inputs: tuple[InputSpec | None, ...], out: Spec, params: Params, *, gradient: bool) -> Pooling | Declined:
    """Describe a pooling. With `gradient`, the first input is the output's gradient, and `out` has the shape of the image."""
    tensors = [s for s in inputs if isinstance(s, Spec)]
    if len(tensors) != len(inputs) or any(s.dtype is not tensors[0].dtype for s in tensors):
        return Declined("the operands have different dtypes")
    if not tensors[0].dtype.is_floating_point:
        return Declined("the kernels only support floating point")
    if params.get("divisor") is not None:
        return Declined("the kernels only divide by the size of the window")
    image, pooled = (out, tensors[0]) if gradient else (tensors[0], out)
    planes, pixels = math.prod(out.shape[:2]), math.prod(out.shape[2:])
    if max(pixels, planes) >= 1 << 31:
        return Declined("an operand has 2^31 elements or more")
    lengths = (
        *image.shape[2:],
        *pooled.shape[2:],
        *params["kernel"],
        *params["stride"],
        *params["padding"],
        *params.get("dilation", (1, 1)),
    )
    return Pooling(
        tensors[0].dtype, planes, pixels, out.shape[1], lengths, tuple(v for s in tensors for v in s.strides)
    )
