"""Choice between one matrix product over the columns of all images (cpu_im2col) and a product per image, on CPUs.

The first is called the im2col product below. It fills vectors if images are small, and packs no weights.

Times are relative to a multiply-add of a matrix product without padding of tiles. They were measured on a core with
AVX-512 (AMD Zen 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.common.problems.conv_planes import input_planes
from polyhal.backends.opencl_c.lowering.conv import cpu_implicit_gemm, cpu_planes, cpu_weight_grad_columns
from polyhal.backends.opencl_c.lowering.conv.cpu_layout import itemsize, lanes
from polyhal.backends.opencl_c.lowering.gemm.cpu_panels import tile_time
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec

_MAX_COLUMN_BYTES = 1 << 25
"""Maximum bytes of columns in memory."""
_MAX_TABLE_ENTRIES = 1 << 15
"""Maximum entries of the table of a launch, one for each tap of the kernel and pixel of an image."""
_MOVE = 8
"""Time to copy a pixel to or from the matrix of columns."""
_FAR_MOVE = 16
"""Time to copy a pixel for weight gradients, whose columns seldom stay in a cache."""
_PACK = 40
"""Time to pack one element of the weights, which the product per image requires."""
_BY_IMAGE, _GRAD_BY_IMAGE = 1.08, 1.28
"""Time per multiply-add of the kernels that process single images, and of their kernel for weight gradients."""
_RESULTS_PER_UNIT = 1 << 12
"""Minimum weights per compute unit for which products for their gradient keep all units busy."""


def prefers_im2col_forward(runtime: Runtime, c: Convolution) -> bool:
    """Return whether the im2col product supports a convolution and is faster."""
    g = c.geometry
    time = _product_time(runtime, c, g.filters, g.images * g.pixels, _MOVE)
    return _supports(c, c.second) and time < _by_image(runtime, c, g.filters, [(*g.result, 1.0)])


def prefers_im2col_input_grad(runtime: Runtime, c: Convolution) -> bool:
    """Return whether the im2col product supports an input gradient and is faster."""
    g = c.geometry
    down, across = ([ceil_div(n - i, s) for i in range(min(s, n))] for n, s in zip(g.size, g.stride, strict=True))
    phases = [(y, x, 1 / len(down) / len(across)) for y in down for x in across]
    time = _product_time(runtime, c, g.taps, g.images * g.pixels, _MOVE)
    return _supports(c, c.second) and time < _by_image(runtime, c, g.channels, phases)


def prefers_im2col_weight_grad(runtime: Runtime, c: Convolution) -> bool:
    """Return whether the im2col product supports a weight gradient and is faster.

    It has no split-K: few weights with sums over many pixels would occupy few compute units.
    """
    g = c.geometry
    if not _supports(c, c.out) or g.groups * g.filters * g.taps < _RESULTS_PER_UNIT * runtime.features.compute_units:
        return False
    width = lanes(runtime, real_type(c.out.dtype))
    planes, _ = input_planes(g, width)
    columns = round_up((g.result[0] - 1) * planes.pitch + g.result[1], width)
    by_image = _GRAD_BY_IMAGE * columns / g.pixels
    packed = cpu_weight_grad_columns.columns(runtime, c)
    if packed is not None:
        by_image = min(by_image, cpu_weight_grad_columns.time(c, packed) / (g.filters * g.taps * g.pixels))
    return _product_time(runtime, c, g.filters, g.taps, _FAR_MOVE) < by_image


def _supports(c: Convolution, weight: Spec) -> bool:
    """Return whether the im2col product supports these operands: a weight in order, and columns within the limits."""
    g, out = c.geometry, c.out
    columns = g.images * g.groups * g.pixels * g.taps * out.dtype.itemsize
    _, channel, row, column = weight.strides
    entries = math.prod(g.kernel) * max(math.prod(g.size), g.pixels)
    together = row == column * weight.shape[3] and channel == row * weight.shape[2]
    return together and out.is_contiguous and columns <= _MAX_COLUMN_BYTES and entries <= _MAX_TABLE_ENTRIES


def _product_time(runtime: Runtime, c: Convolution, m: int, n: int, move: int) -> float:
    """Return the time per multiply-add of an im2col product of m x n sums, including copies of pixels."""
    time = tile_time(runtime, itemsize(real_type(c.out.dtype)), m, n) / (m * n)
    return time + move / c.geometry.filters + move / c.geometry.taps


def _by_image(runtime: Runtime, c: Convolution, rows: int, phases: Sequence[tuple[int, int, float]]) -> float:
    """Return the time per multiply-add of kernels that compute `rows` rows per image.

    `phases` are their heights, widths and fractions of the work.
    """
    g, size = c.geometry, itemsize(real_type(c.out.dtype))
    time = 0.0
    for down, across, share in phases:
        packed = cpu_implicit_gemm.worth_packing(rows, math.prod(g.kernel), across)
        gap = 0 if packed or g.filters * g.taps * size <= cpu_planes.WEIGHTS_BYTES else g.kernel[1] - 1
        time += share * tile_time(runtime, size, rows, down * (across + gap)) / (rows * down * across)
    return _BY_IMAGE * time + _PACK / (g.images * g.pixels)
