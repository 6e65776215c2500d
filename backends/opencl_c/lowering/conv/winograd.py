"""Winograd convolution F(2x2, 3x3) on GPUs: windows of 3 by 3 and stride 1 in full float32, with many channels and filters.

The transforms read and write four times the pixels, so that fewer multiplications pay only for many channels: on an H200, 128
channels of 28 x 28 pixels take 127 µs for 212, and 64 of 56 x 56 take 177 for 214.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Pair
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.gemm import dispatch as gemm
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import Launch, SimpleLaunch

_TILE = 16
"""Elements of a transformed tile, 4 by 4."""
_MIN_CHANNELS = 64
"""Minimum channels and filters for which the transforms cost less than the multiplications that they save."""
_MIN_TILES = 1024
"""Minimum columns of the products for which they fill the device."""
_ALIGNED = 4
"""Columns that tiles are padded to, for vectors."""
_MAX_BYTES = 1 << 30
"""Maximum bytes of transformed pixels and of sums."""


@dataclass(frozen=True, slots=True)
class _Windows:
    """Channels, filters, sizes of images and results, borders, and strides of the weight of a convolution."""

    channels: int
    filters: int
    size: Pair
    result: Pair
    padding: Pair
    weight: tuple[int, int, int, int, int]
    """The first tap, and the distances of filters, channels, rows and columns."""


def forward(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the convolution, with its bias; None if another kernel is faster or needed."""
    g, (filter_, channel, row, column) = c.geometry, c.second.strides
    windows = _Windows(g.channels, g.filters, g.size, g.result, g.padding, (0, filter_, channel, row, column))
    return build(runtime, c, windows) if _is_faster(runtime, c) else None


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the input gradient, as a convolution with flipped windows; None if another kernel is faster."""
    if not _is_faster(runtime, c):
        return None
    g, (filter_, channel, row, column) = c.geometry, c.second.strides
    padding = (2 - g.padding[0], 2 - g.padding[1])
    flipped = (2 * row + 2 * column, channel, filter_, -row, -column)
    return build(runtime, c, _Windows(g.filters, g.channels, g.result, g.size, padding, flipped))


def suits(runtime: Runtime, c: Convolution) -> bool:
    """Return whether a convolution or gradient has windows of 3 by 3, stride 1, and no kernel for tensor cores."""
    g = c.geometry
    if (g.kernel, g.stride, g.dilation, g.groups) != ((3, 3), (1, 1), (1, 1), 1):
        return False
    if c.first.dtype is not dtypes.float32 or c.out.dtype is not dtypes.float32 or not c.out.is_contiguous:
        return False
    return c.precision == "highest" or not runtime.features.tensor_cores


def _is_faster(runtime: Runtime, c: Convolution) -> bool:
    if not suits(runtime, c):
        return False
    g = c.geometry
    tiles = g.images * ceil_div(g.size[0], 2) * ceil_div(g.size[1], 2)
    many = min(g.channels, g.filters) >= _MIN_CHANNELS and tiles >= _MIN_TILES
    return many and 4 * _TILE * max(g.channels, g.filters) * tiles <= _MAX_BYTES


def build(runtime: Runtime, c: Convolution, w: _Windows) -> Launch:
    """Build the launches: transforms of weights and pixels, products, and the transform of their sums."""
    place = c.target + 1
    tiles_down, tiles_across = ceil_div(w.result[0], 2), ceil_div(w.result[1], 2)
    tiles = c.geometry.images * tiles_down * tiles_across
    columns = round_up(tiles, _ALIGNED)
    geometry: Args = {
        **dict(zip(("x_image", "x_channel", "x_down", "x_across"), c.first.strides, strict=True)),
        **dict(zip(("w_start", "w_filter", "w_channel", "w_row", "w_column"), w.weight, strict=True)),
        "channels": w.channels,
        "filters": w.filters,
        "tiles": tiles,
        "columns": columns,
        "tiles_down": tiles_down,
        "tiles_across": tiles_across,
        "height": w.size[0],
        "width": w.size[1],
        "down": w.result[0],
        "across": w.result[1],
        "padding_y": w.padding[0],
        "padding_x": w.padding[1],
    }
    group = runtime.features.group_size

    def launch(kernel: str, args: Args, lengths: Pair, bias: bool = False) -> Launch:
        return runtime.launch(
            "conv/winograd", {"BIAS": bias}, args | geometry, (lengths[0], lengths[1]), (group, 1), kernel=kernel
        )

    filters = launch("winograd_filters", {"w": Tensor(1), "transformed": Workspace(place)}, (w.channels, w.filters))
    pixels = launch("winograd_tiles", {"x": Tensor(0), "transformed": Workspace(place + 1)}, (columns, w.channels))
    read: Args = {"sums": Workspace(place + 2), "x": Tensor(0), "w": Tensor(1), "out": Tensor(c.target)}
    if c.bias is not None:
        read["bias"] = Tensor(c.bias)
    results = launch("winograd_results", read, (tiles, w.filters), c.bias is not None)
    shapes = ((_TILE, w.filters, w.channels), (_TILE, w.channels, columns), (_TILE, w.filters, columns))
    specs = {place + i: contiguous(dtypes.float32, shape) for i, shape in enumerate(shapes)}
    left, right, out = (Matrix(i, s.strides[1], 1, (0, 0, s.strides[0]), True) for i, s in specs.items())
    product = gemm.build(
        runtime,
        Product(
            (1, 1, _TILE),
            w.filters,
            columns,
            w.channels,
            left,
            right,
            out,
            dtypes.float32,
            dtypes.float32,
            None,
            place + len(specs),
            precision=c.precision,
        ),
    )

    def multiply(*args: Any) -> None:
        product(*(Ref(x, specs[i]) if i in specs else x for i, x in enumerate(args)))

    steps = (filters, pixels, SimpleLaunch(product.name, multiply), results)
    return LaunchSequence(steps, (*(s.nbytes for s in specs.values()), *product.workspace))
