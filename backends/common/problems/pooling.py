"""What a pooling works on: the numbers that its kernels take, the same for every shader language."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec


@dataclass(frozen=True, slots=True)
class Pooling:
    """`planes` images of `pixels` elements are made, `channels` of them per image of the batch."""

    planes: int
    pixels: int
    channels: int
    lengths: tuple[int, ...]
    """Image, result of the pooling, kernel, stride, padding and dilation: height and width of each."""
    strides: tuple[int, ...]
    """The four of every input."""


def describe(
    inputs: tuple[InputSpec | None, ...], out: Spec, params: Mapping[str, Any], *, gradient: bool
) -> Pooling | Declined:
    """The pooling of these operands, of which a gradient comes first; its output is then the image's."""
    tensors = [s for s in inputs if isinstance(s, Spec)]
    if len(tensors) != len(inputs) or any(s.dtype is not out.dtype for s in tensors):
        return Declined("operands of different dtypes")
    image, pooled = (out, tensors[0]) if gradient else (tensors[0], out)
    planes, pixels = math.prod(out.shape[:2]), math.prod(out.shape[2:])
    if max(pixels, planes) >= 1 << 31:
        return Declined("2^31 elements or more")
    lengths = (
        *image.shape[2:], *pooled.shape[2:], *params["kernel"], *params["stride"], *params["padding"],
        *params.get("dilation", (1, 1)),
    )  # fmt: skip
    return Pooling(planes, pixels, out.shape[1], lengths, tuple(v for s in tensors for v in s.strides))
