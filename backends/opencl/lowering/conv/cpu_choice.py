"""Whether a convolution on a CPU is faster as one matrix product of the columns of all images (cpu_im2col) than image by
image.

Times are relative: a multiply-add of a matrix product takes 1, without what its tiles waste. They were measured on a core
with AVX-512 (AMD Zen 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.common.problems.conv_planes import input_planes
from polyhal.backends.opencl.lowering.conv import cpu_implicit_gemm, cpu_planes, cpu_weight_grad_columns
from polyhal.backends.opencl.lowering.conv.cpu_layout import itemsize, lanes
from polyhal.backends.opencl.lowering.gemm.cpu_panels import tile_time
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec

_MAX_COLUMN_BYTES = 1 << 25
"""Columns in memory, at most."""
_MAX_PLACES = 1 << 15
"""Taps times pixels, at most: launches have a table of them."""
_MOVE = 8
"""Time to move a pixel to or from a column."""
_FAR_MOVE = 16
"""The same for weight gradients, whose columns are those that seldom stay in a cache."""
_PACK = 40
"""Time in which kernels that work image by image pack a weight."""
_BY_IMAGE, _GRAD_BY_IMAGE = 1.08, 1.28
"""Time per multiply-add of those kernels, and of the one for weight gradients."""
_RESULTS_PER_UNIT = 1 << 12
"""Weights per compute unit from which on products for their gradient keep all units busy."""


def forward_pays(runtime: Runtime, c: Convolution) -> bool:
    """Whether the product takes a convolution, and is faster."""
    g = c.geometry
    time = _product_time(runtime, c, g.filters, g.images * g.pixels, _MOVE)
    return _takes(c, c.second) and time < _by_image(runtime, c, g.filters, [(*g.result, 1.0)])


def input_grad_pays(runtime: Runtime, c: Convolution) -> bool:
    """Whether the product takes an input gradient, and is faster."""
    g = c.geometry
    down, across = ([ceil_div(n - i, s) for i in range(min(s, n))] for n, s in zip(g.size, g.stride, strict=True))
    phases = [(y, x, 1 / len(down) / len(across)) for y in down for x in across]
    time = _product_time(runtime, c, g.taps, g.images * g.pixels, _MOVE)
    return _takes(c, c.second) and time < _by_image(runtime, c, g.channels, phases)


def weight_grad_pays(runtime: Runtime, c: Convolution) -> bool:
    """Whether the product takes a weight gradient, and is faster. It cannot split sums over many pixels among cores."""
    g = c.geometry
    if not _takes(c, c.out) or g.groups * g.filters * g.taps < _RESULTS_PER_UNIT * runtime.features.compute_units:
        return False
    width = lanes(runtime, real_type(c.out.dtype))
    planes, _ = input_planes(g, width)
    columns = round_up((g.result[0] - 1) * planes.pitch + g.result[1], width)
    by_image = _GRAD_BY_IMAGE * columns / g.pixels
    packed = cpu_weight_grad_columns.columns(runtime, c)
    if packed is not None:
        by_image = min(by_image, cpu_weight_grad_columns.time(c, packed) / (g.filters * g.taps * g.pixels))
    return _product_time(runtime, c, g.filters, g.taps, _FAR_MOVE) < by_image


def _takes(c: Convolution, weight: Spec) -> bool:
    """Whether the product takes these operands."""
    g, out = c.geometry, c.out
    columns = g.images * g.groups * g.pixels * g.taps * out.dtype.itemsize
    _, channel, row, column = weight.strides
    places = math.prod(g.kernel) * max(math.prod(g.size), g.pixels)
    together = row == column * weight.shape[3] and channel == row * weight.shape[2]
    return together and out.is_contiguous and columns <= _MAX_COLUMN_BYTES and places <= _MAX_PLACES


def _product_time(runtime: Runtime, c: Convolution, m: int, n: int, move: int) -> float:
    """Time per multiply-add of a product of m x n sums, and of moving pixels to or from columns."""
    time = tile_time(runtime, itemsize(real_type(c.out.dtype)), m, n) / (m * n)
    return time + move / c.geometry.filters + move / c.geometry.taps


def _by_image(runtime: Runtime, c: Convolution, rows: int, phases: Sequence[tuple[int, int, float]]) -> float:
    """Time per multiply-add of kernels that make `rows` rows of each image; `phases` are heights, widths and shares of them."""
    g, size = c.geometry, itemsize(real_type(c.out.dtype))
    time = 0.0
    for down, across, share in phases:
        packed = cpu_implicit_gemm.worth_packing(rows, math.prod(g.kernel), across)
        gap = 0 if packed or g.filters * g.taps * size <= cpu_planes.WEIGHTS_BYTES else g.kernel[1] - 1
        time += share * tile_time(runtime, size, rows, down * (across + gap)) / (rows * down * across)
    return _BY_IMAGE * time + _PACK / (g.images * g.pixels)
