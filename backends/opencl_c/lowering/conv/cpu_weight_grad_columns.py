"""The weight gradient of a convolution on CPUs as a matrix product of gradients in place and columns of pixels."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.opencl_c.lowering.conv.cpu_layout import is_real, itemsize, work_items
from polyhal.backends.opencl_c.lowering.gemm.cpu_panels import RegisterTile, register_tile
from polyhal.backends.opencl_c.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_KC = 128
"""Maximum results of a pass: their operands stay in the nearest caches."""
_MIN_TAPS, _MAX_TAPS = 2, 8
"""Supported widths of a convolution window: narrower ones are copied pixel by pixel, wider ones take over two copies."""
_RUN_COST, _COPY_COST = 480, 40
"""Time to start packing the pixels of a row of results for a row of a window, and time of each copy, in multiply-adds."""
_WORSE_LOADS = 1.02
"""Time of a multiply-add relative to other products: a tile reads one stream of gradients per row."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Division of the product among work-items."""

    tile: RegisterTile
    segments: int
    """Rows of convolution windows per work-item."""
    blocks: int
    splits: int


def columns(runtime: Runtime, c: Convolution) -> Columns | None:
    """Return the division of the product; None if this kernel does not support the convolution."""
    g, real = c.geometry, real_type(c.out.dtype)
    taps = g.kernel[1]
    if (
        not _MIN_TAPS <= taps <= _MAX_TAPS
        or g.dilation[1] != 1
        or not (is_real(c.first, real) and is_real(c.second, real))
    ):
        return None
    (_, _, g_row, g_column), x_strides = c.first.strides, c.second.strides
    if g_column != 1 or g_row != g.result[1] or x_strides[3] != 1 or min(x_strides) < 0:
        return None
    tile = register_tile(runtime, itemsize(real), g.filters, g.taps)
    segments = tile.columns // taps
    if not segments:
        return None
    blocks = ceil_div(g.channels * g.kernel[0], segments)
    # Enough work-items that the cores finish at about the same time.
    splits = min(g.images, ceil_div(2 * work_items(runtime), blocks * g.groups))
    return Columns(tile, segments, blocks, splits)


def time(c: Convolution, division: Columns) -> float:
    """Return the time per image, in multiply-adds."""
    g, tile = c.geometry, division.tile
    runs, copies = g.channels * g.kernel[0] * g.result[0], ceil_div(g.kernel[1], 4)
    packing = runs * (_RUN_COST + _COPY_COST * copies * g.result[1])
    return _WORSE_LOADS * round_up(g.filters, tile.rows) * tile.columns * division.blocks * g.pixels + packing


def launch(runtime: Runtime, c: Convolution, division: Columns, sums: Tensor | Workspace) -> tuple[Launch, int]:
    """Return the launch that computes the sums, `splits` of each, and the bytes of the first workspace."""
    g, tile, real = c.geometry, division.tile, real_type(c.out.dtype)
    x_image, x_channel, x_row, _ = c.second.strides
    multiply = runtime.launch(
        "conv/cpu_weight_grad_columns",
        {
            "DTYPE": c.second.dtype.name,
            "REAL": real,
            "WIDTH": tile.width,
            "ROWS": tile.rows,
            "VECTORS": tile.vectors,
            "TAPS": g.kernel[1],
            "KC": _KC,
            "PREFETCH_DISTANCE": prefetch_distance(runtime),
        },
        {
            "g": Tensor(0),
            "x": Tensor(1),
            "partial": Workspace(3),
            "sums": sums,
            "g_image": c.first.strides[0],
            "g_channel": c.first.strides[1],
            "x_image": x_image,
            "x_channel": x_channel,
            "x_row": x_row,
            "x_last": sum((n - 1) * s for n, s in zip(c.second.shape, c.second.strides, strict=True)),
            "images": g.images,
            "groups": g.groups,
            "channels": g.channels,
            "filters": g.filters,
            "segments": g.channels * g.kernel[0],
            "kernel_h": g.kernel[0],
            "down": g.result[0],
            "across": g.result[1],
            "height": g.size[0],
            "width": g.size[1],
            "stride_h": g.stride[0],
            "stride_w": g.stride[1],
            "padding_h": g.padding[0],
            "padding_w": g.padding[1],
            "dilation_h": g.dilation[0],
            "splits": division.splits,
        },
        (division.blocks, division.splits, g.groups),
        (1, 1, 1),
    )
    tiles = division.blocks * division.splits * g.groups
    return multiply, tiles * round_up(g.filters, tile.rows) * tile.columns * itemsize(real)
