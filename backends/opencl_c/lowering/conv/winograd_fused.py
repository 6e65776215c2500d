"""Winograd convolution F(2x2, 3x3) in one product with its transforms, for groups with much local memory.

It writes neither transformed pixels nor sums, but transforms pixels once for every 64 filters. On an H200, 64 channels of
56 x 56 pixels, 32 images, take 121 µs for the 171 of conv/winograd.py, and 128 of 28 x 28 102 for 122, but 256 of 14 x 14 140
for 125.
"""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.winograd_tile import ELEMENTS, GROUP, TILE, WinogradTile, fits
from polyhal.backends.opencl_c.lowering.conv.winograd_windows import Windows
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_MAX_FILTERS = 128
"""Maximum filters for which transforming pixels again costs less than writing them."""
_MIN_FILL = 0.7
"""Minimum groups per compute unit."""


def is_faster(runtime: Runtime, w: Windows) -> bool:
    """Return whether a device has the local memory, and these launches are faster than those of conv/winograd.py."""
    groups = ceil_div(w.filters, TILE.rows) * ceil_div(w.tiles, TILE.columns)
    enough = groups >= _MIN_FILL * runtime.features.compute_units
    return fits(runtime.features) and enough and w.filters <= _MAX_FILTERS


def build(runtime: Runtime, c: Convolution, w: Windows, tile: WinogradTile) -> Launch:
    """Build the launches: the transform of the weights, and the product with the transforms of pixels and results."""
    place = c.target + 1
    filters, channels = round_up(w.filters, tile.rows), round_up(w.channels, tile.terms)
    geometry: Args = {**w.args(c), "padded_filters": filters}
    transform = runtime.launch(
        "conv/winograd_fused",
        {},
        {"w": Tensor(1), "transformed": Workspace(place), **geometry},
        (filters, channels),
        (runtime.features.group_size, 1),
        kernel="winograd_fused_filters",
    )
    tensors: Args = {"x": Tensor(0), "w": Tensor(1), "transformed": Workspace(place), "out": Tensor(c.target)}
    if c.bias is not None:
        tensors["bias"] = Tensor(c.bias)
    multiply = runtime.launch(
        "conv/winograd_fused",
        {
            **tile.definitions(runtime.features),
            "BIAS": c.bias is not None,
            "ADJACENT": c.first.strides[3] == 1,
            "TENSOR_CORES": runtime.features.tensor_cores,
        },
        tensors | geometry,
        (filters // tile.rows * GROUP, ceil_div(w.tiles, tile.columns)),
        (GROUP, 1),
    )
    return LaunchSequence((transform, multiply), (4 * channels * ELEMENTS * filters,))
