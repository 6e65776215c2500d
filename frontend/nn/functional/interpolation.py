"""Changing the size of images: interpolation by PyTorch's modes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.nn.resample_tables import Method
from polyhal.hal.ops.returns import Returns, returns
from polyhal.nn.functional.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    resampled,
)
from polyhal.tensor import Tensor

_starts = FUNCTIONS["resample_starts"]
_KINDS = {
    "nearest": ("nearest", (1, 2, 3)),
    "nearest-exact": ("nearest-exact", (1, 2, 3)),
    "linear": ("linear", (1,)),
    "bilinear": ("linear", (2,)),
    "trilinear": ("linear", (3,)),
    "bicubic": ("cubic", (2,)),
    "area": ("mean", (1, 2, 3)),
}
"""How each mode resamples an axis, and the numbers of spatial axes that it is for."""


@returns(Returns.COPY)
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial axes of (N, C, ...), to `size` or by `scale_factor`, with PyTorch's modes.

    They are nearest, nearest-exact, linear (one spatial axis), bilinear and bicubic (two), trilinear (three) and area
    (means over an even division). `align_corners` keeps the centers of the outer elements in place, rather than their
    edges. `antialias` (bilinear and bicubic) averages over the area of a result. With `recompute_scale_factor` positions
    follow from the lengths, and not from `scale_factor`. Integers are for bilinear, bicubic and nearest modes, and are
    rounded. Raises ShapeError.

        >>> import polyhal
        >>> x = polyhal.tensor([[[0.0, 1.0]]], device="numpy")
        >>> interpolate(x, scale_factor=2, mode="linear").tolist()
        [[[0.0, 0.25, 0.75, 1.0]]]
    """
    axes = input.ndim - 2
    _check_mode(mode, axes, input.shape, align_corners, antialias)
    lengths = input.shape[2:]
    sizes, scales = _sizes(lengths, size, scale_factor, bool(recompute_scale_factor))
    if mode == "area":
        pool = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}[axes]
        return pool(input, sizes)
    if 0 in lengths or min(sizes) < 1:
        raise ShapeError(message("interpolate", f"axes of {lengths} to {sizes}", expected="lengths of at least 1"))
    steps = []
    for axis, (n, new, scale) in enumerate(zip(lengths, sizes, scales, strict=True), 2):
        if n != new or (scale not in (None, 1.0) and not align_corners):
            steps.append((axis, new, Method(_KINDS[mode][0], bool(align_corners), antialias, scale)))
    if input.dtype.is_floating_point:
        return resampled(input, steps)
    if _KINDS[mode][0].startswith("nearest"):
        return _picked(input, steps)
    floats = resampled(input.cast(dtype=dtypes.float32), steps)
    limits = dtypes.iinfo(input.dtype)
    return ops.clip(ops.round(floats), limits.min, limits.max).cast(dtype=input.dtype)


def _check_mode(mode: str, axes: int, shape: tuple[int, ...], align_corners: bool | None, antialias: bool) -> None:
    if mode not in _KINDS:
        raise ShapeError(message("interpolate", f"mode {mode!r}", expected=", ".join(_KINDS)))
    kind, allowed = _KINDS[mode]
    if axes not in allowed:
        names = " or ".join(map(str, allowed))
        raise ShapeError(message("interpolate", f"shape {shape} in mode {mode!r}", expected=f"{names} spatial axes"))
    if align_corners is not None and kind not in ("linear", "cubic"):
        raise ShapeError(message("interpolate", f"align_corners in mode {mode!r}", expected="a linear or cubic mode"))
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ShapeError(message("interpolate", f"antialias in mode {mode!r}", expected="bilinear or bicubic"))


def _sizes(
    lengths: tuple[int, ...],
    size: int | Sequence[int] | None,
    scale_factor: float | Sequence[float] | None,
    recompute: bool,
) -> tuple[tuple[int, ...], list[float | None]]:
    """Return the new lengths, and the scale of each axis where that decides about positions. Raises ShapeError."""
    axes = len(lengths)
    if (size is None) == (scale_factor is None):
        raise ShapeError(message("interpolate", f"size {size} and scale_factor {scale_factor}", expected="one of them"))
    if size is not None:
        if recompute:
            raise ShapeError(message("interpolate", "recompute_scale_factor with a size", expected="a scale_factor"))
        sizes = (size,) * axes if isinstance(size, int) else tuple(int(n) for n in size)
        if len(sizes) != axes:
            raise ShapeError(message("interpolate", f"size {size}", expected=f"one length, or {axes}"))
        return sizes, [None] * axes
    given = [scale_factor] * axes if isinstance(scale_factor, (int, float)) else list(scale_factor or ())
    scales = [float(s) for s in given if s is not None]
    if len(scales) != axes:
        raise ShapeError(message("interpolate", f"scale_factor {scale_factor}", expected=f"one number, or {axes}"))
    sizes = tuple(math.floor(n * s) for n, s in zip(lengths, scales, strict=True))
    return sizes, [None if recompute else s for s in scales]


def _picked(x: Tensor, steps: Sequence[tuple[int, int, Method]]) -> Tensor:
    """Nearest elements of a tensor of integers."""
    for axis, n, method in steps:
        x = ops.take(x, _starts(method, x.shape[axis], n, False, device=x.device), axis)
    return x


@returns(Returns.COPY)
def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Resize images (N, C, ...): older name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@returns(Returns.COPY)
def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` of images (N, C, ...) in mode "nearest"."""
    return interpolate(input, size, scale_factor)


@returns(Returns.COPY)
def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` of images (N, C, H, W) in mode "bilinear", with aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)
