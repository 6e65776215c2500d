"""Maxima, means and norms of sliding windows, over one to three axes, on the two-dimensional ops.

One axis is an image of height 1. Three axes are pooled as planes first, and then along the depth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.top_level import top_level
from polyhal.nn.functional.spatial import Numbers, on_batch, per_axis
from polyhal.tensor import Tensor

_indices2d = FUNCTIONS["max_pool2d_indices"]
Axes = tuple[int, ...]
Window = tuple[Axes, Axes, Axes, Axes]
"""Kernel, stride, padding and dilation, one number each per axis."""


@top_level
def max_pool1d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maximum of each window of sequences (N, C, L), as `max_pool2d`."""
    return _max_pool("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maximum of each window of images (N, C, H, W) or (C, H, W); `stride` defaults to the size of the window.

    Padding counts as -infinity. `ceil_mode` adds windows at the end that reach beyond the padding. With `return_indices`
    also the maxima's positions in each plane, row by row (int64), as `max_unpool2d` takes them. Raises ShapeError.
    """
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@top_level
def max_pool3d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maximum of each window of volumes (N, C, D, H, W), as `max_pool2d`."""
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def window_of(
    axes: int, kernel_size: Numbers, stride: Numbers | None, padding: Numbers = 0, dilation: Numbers = 1
) -> Window:
    """Return the arguments of a window, one number each per axis; without a stride, that is the kernel. Raises ShapeError."""
    kernel = per_axis(kernel_size, axes, "kernel_size")
    no_stride = stride is None or (isinstance(stride, Sequence) and not stride)
    steps = kernel if no_stride or stride is None else per_axis(stride, axes, "stride")
    return kernel, steps, per_axis(padding, axes, "padding"), per_axis(dilation, axes, "dilation")


def _max_pool(
    op: str,
    axes: int,
    x: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None,
    padding: Numbers,
    dilation: Numbers,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    window = window_of(axes, kernel_size, stride, padding, dilation)
    return on_batch(op, x, axes, lambda batch: max_windows(batch, window, ceil_mode, return_indices))


def max_windows(x: Tensor, window: Window, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Return the maxima of windows of a batch (N, C, ...), and on request their indices in the last axes."""
    axes = x.ndim - 2
    if axes == 3:
        return _max_volumes(x, window, ceil_mode, return_indices)
    if axes == 1:
        out = max_windows(x.unsqueeze(2), _of_rows(window), ceil_mode, return_indices)
        return tuple(t.squeeze(2) for t in out) if return_indices else out.squeeze(2)
    values = ops.max_pool2d(x, *window, ceil_mode)
    return (values, _indices2d(x, *window, ceil_mode)) if return_indices else values


def _of_rows(window: Window) -> Window:
    """Return a window of one axis as a window of images of height 1."""
    kernel, stride, padding, dilation = window
    return (1, *kernel), (1, *stride), (0, *padding), (1, *dilation)


def _split(window: Window) -> tuple[Window, Window]:
    """Return a window of volumes as one of planes, and one of images (D, H * W) along the depth."""
    kernel, stride, padding, dilation = window
    planes = kernel[1:], stride[1:], padding[1:], dilation[1:]
    return planes, ((kernel[0], 1), (stride[0], 1), (padding[0], 0), (dilation[0], 1))


def _max_volumes(x: Tensor, window: Window, ceil_mode: bool, return_indices: bool) -> Any:
    n, channels, depth = x.shape[:3]
    in_plane, in_depth = _split(window)
    planes = x.reshape((n, channels * depth, *x.shape[3:]))
    best = ops.max_pool2d(planes, *in_plane, ceil_mode)
    height, width = best.shape[2:]
    columns = best.reshape((n, channels, depth, height * width))
    values = ops.max_pool2d(columns, *in_depth, ceil_mode)
    shape = (*values.shape[:3], height, width)
    if not return_indices:
        return values.reshape(shape)
    # A position is a depth, and the position of the maximum of that plane.
    chosen = _indices2d(columns, *in_depth, ceil_mode) // (height * width)
    positions = _indices2d(planes, *in_plane, ceil_mode).reshape(columns.shape)
    within = ops.take_along_axis(positions, chosen, 2)
    return values.reshape(shape), (chosen * (x.shape[3] * x.shape[4]) + within).reshape(shape)


@top_level
def avg_pool1d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window of sequences (N, C, L), as `avg_pool2d`."""
    return _avg_pool("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window of images (N, C, H, W) or (C, H, W); `stride` defaults to the size of the window.

    With `count_include_pad` the zeros of the padding count as elements; elements of windows beyond it in `ceil_mode` never
    does. `divisor_override` replaces the counts. Floats only. Raises ShapeError and UnsupportedDTypeError.
    """
    return _avg_pool(
        "avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def avg_pool3d(
    input: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None = None,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window of volumes (N, C, D, H, W), as `avg_pool2d`."""
    return _avg_pool(
        "avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _avg_pool(
    op: str,
    axes: int,
    x: Tensor,
    kernel_size: Numbers,
    stride: Numbers | None,
    padding: Numbers,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    if divisor is not None and divisor == 0:
        raise ShapeError(message(op, "divisor_override 0", expected="a number other than 0"))
    window = window_of(axes, kernel_size, stride, padding)
    out: Tensor = on_batch(
        op, x, axes, lambda batch: _mean_windows(batch, window, ceil_mode, count_include_pad, divisor)
    )
    return out


def _mean_windows(x: Tensor, window: Window, ceil_mode: bool, include: bool, divisor: float | None) -> Tensor:
    axes = x.ndim - 2
    if axes == 1:
        return _mean_windows(x.unsqueeze(2), _of_rows(window), ceil_mode, include, divisor).squeeze(2)
    if axes == 2:
        kernel, stride, padding, _ = window
        return ops.avg_pool2d(x, kernel, stride, padding, ceil_mode, include, divisor)
    if x.dtype.itemsize < 4:
        # Two steps, one rounding.
        return _mean_windows(x.cast(dtype=dtypes.float32), window, ceil_mode, include, divisor).cast(dtype=x.dtype)
    n, channels, depth = x.shape[:3]
    in_plane, in_depth = _split(window)
    size = in_plane[0][0] * in_plane[0][1]
    # The mean of a box is the mean along the depth of the means of planes. A divisor is shared between the two.
    first, second = (None, None) if divisor is None else (size, divisor / size)
    planes = _mean_windows(x.reshape((n, channels * depth, *x.shape[3:])), in_plane, ceil_mode, include, first)
    height, width = planes.shape[2:]
    columns = planes.reshape((n, channels, depth, height * width))
    out = _mean_windows(columns, in_depth, ceil_mode, include, second)
    return out.reshape((*out.shape[:3], height, width))


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return the norm of each window of sequences (N, C, L), as `lp_pool2d`."""
    return _lp_pool("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return the norm `sum(x ** p) ** (1 / p)` of each window of images (N, C, H, W); p is `norm_type`.

    At infinity it is the largest absolute value, at -infinity the smallest. Windows whose sum is 0 have the gradient 0.
    """
    return _lp_pool("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return the norm of each window of volumes (N, C, D, H, W), as `lp_pool2d`."""
    return _lp_pool("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)


def _lp_pool(
    op: str, axes: int, x: Tensor, norm_type: float, kernel_size: Numbers, stride: Numbers | None, ceil_mode: bool
) -> Tensor:
    if math.isinf(norm_type):
        sizes = abs(x) if norm_type > 0 else -abs(x)
        out: Tensor = _max_pool(op, axes, sizes, kernel_size, stride, 0, 1, ceil_mode, False)
        return out if norm_type > 0 else -out
    size = math.prod(per_axis(kernel_size, axes, "kernel_size"))
    # As in PyTorch, windows that ceil mode clips are scaled to the size of a whole one.
    total = _avg_pool(op, axes, x**norm_type, kernel_size, stride, 0, ceil_mode, True, None) * size
    # The root of zero has no finite derivative; windows of sum 0 have the gradient 0.
    return ops.where(total == 0, 0.0, total) ** (1.0 / norm_type)
