"""The gradient of weights by Winograd F(3x3, 2x2) on GPUs, the counterpart of conv/winograd.py.

Transforms are part of the product, so that transformed pixels are not written. Predicted for 128 channels of 28 x 28 pixels, 32
images, on an H200: 49 µs of multiply-adds, 15 of transforms, 10 for the sums of 16 parts; it is bound by latency, see the notes
of benchmarks/results/h200-kernels.json.
"""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.split_k import split_k
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.winograd_tile import ELEMENTS, GROUP, TILE, WinogradTile, fits
from polyhal.backends.opencl_c.lowering.conv.winograd_windows import suits
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_MIN_GAIN = 1.5
"""Minimum ratio of the multiplications of other kernels to those of this one, with whole tiles."""
_MIN_WORK = 1 << 27
"""Minimum multiply-adds for which a second launch pays."""
_MIN_TERMS = 32
"""Minimum tiles of pixels of a split."""
_REDUCED = 16
"""Channels that a group of winograd_weight_grad_results reduces."""


def weight_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the launches of the gradient of the weight; None if another kernel is faster or needed."""
    faster = fits(runtime.features) and suits(runtime, c) and _is_faster(c, TILE)
    return build(runtime, c, TILE) if faster else None


def _is_faster(c: Convolution, tile: WinogradTile) -> bool:
    g = c.geometry
    blocks = round_up(g.filters, tile.rows) * round_up(g.channels, tile.columns)
    tiles = g.images * ceil_div(g.result[0], 2) * ceil_div(g.result[1], 2)
    work = g.images * g.pixels * g.filters * g.taps
    return work >= max(_MIN_WORK, _MIN_GAIN * ELEMENTS * blocks * tiles)


def build(runtime: Runtime, c: Convolution, tile: WinogradTile) -> Launch:
    """Build the launches: products of parts of the tiles with the transforms before them, and the transform of the sums."""
    g, grad, x = c.geometry, c.first, c.second
    down, across = ceil_div(g.result[0], 2), ceil_div(g.result[1], 2)
    tiles = g.images * down * across
    filters, channels = round_up(g.filters, tile.rows), round_up(g.channels, tile.columns)
    blocks = (filters // tile.rows, channels // tile.columns)
    units = runtime.features.compute_units
    split = split_k(tiles, blocks[0] * blocks[1], units, min_terms=_MIN_TERMS, multiple=tile.terms)
    geometry: Args = {
        **dict(zip(("x_image", "x_channel", "x_down", "x_across"), x.strides, strict=True)),
        **dict(zip(("g_image", "g_filter", "g_down", "g_across"), grad.strides, strict=True)),
        "channels": g.channels,
        "filters": g.filters,
        "tiles": tiles,
        "terms": split.terms,
        "tiles_down": down,
        "tiles_across": across,
        "padded_channels": channels,
        "padded_filters": filters,
        "height": g.size[0],
        "width": g.size[1],
        "down": g.result[0],
        "across": g.result[1],
        "padding_y": g.padding[0],
        "padding_x": g.padding[1],
        "images": g.images,
    }
    tensors: Args = {"partial": Workspace(c.target + 1), "g": Tensor(0), "x": Tensor(1)}
    multiply = runtime.launch(
        "conv/winograd_weight_grad",
        {**tile.definitions(runtime.features), "ADJACENT": grad.strides[3] == x.strides[3] == 1},
        tensors | geometry,
        (blocks[0] * GROUP, blocks[1], split.splits),
        (GROUP, 1, 1),
    )
    results = runtime.launch(
        "conv/winograd_weight_grad",
        {},
        {**tensors, "out": Tensor(c.target), "splits": split.splits, **geometry},
        (ceil_div(g.channels, _REDUCED) * GROUP, g.filters),
        (GROUP, 1),
        kernel="winograd_weight_grad_results",
    )
    return LaunchSequence((multiply, results), (4 * split.splits * ELEMENTS * filters * channels,))
