"""Winograd convolution F(2x2, 3x3) on CPUs: windows of 3 by 3 and stride 1, where it is faster than conv/cpu_planes.cl.

Its rounding errors are about as large as in the plain kernel, whose sums are longer. Results that are not finite are
recomputed from their taps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Table, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Geometry
from polyhal.backends.common.problems.conv_planes import Phase, TapPlanes, as_forward_conv, input_planes
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.cpu_layout import (
    BAND,
    Weights,
    itemsize,
    lanes,
    packed_planes,
    registers,
    work_items,
)
from polyhal.backends.opencl_c.lowering.gemm.cpu_panels import RegisterTile
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_TILE = 16
"""Elements of a transformed tile, 4 by 4."""
_MIN_CHANNELS = 16
"""Minimum channels and filters for which the transforms cost less than the multiplications that they save."""
_WEIGHTS_BYTES = 8 << 20
"""Maximum bytes of transformed weights, 16/9 of the weights' size; more would not stay in a cache."""
_MIN_GAIN = 1.4
"""Minimum ratio of the plain kernel's multiplications to this one's, counting padding columns."""
_WIDE_ROWS, _NARROW_ROWS = 8, 4
"""Rows of a register tile with 32 vector registers and with 16."""


def is_faster(runtime: Runtime, g: Geometry, out: Spec) -> bool:
    """Return whether these kernels support a convolution of that geometry and are faster."""
    if (g.kernel, g.stride, g.dilation) != ((3, 3), (1, 1), (1, 1)) or real_type(out.dtype) != "float":
        return False
    if min(g.channels, g.filters) < _MIN_CHANNELS:
        return False
    if _TILE * g.groups * g.channels * g.filters * 4 > _WEIGHTS_BYTES:
        return False
    width = lanes(runtime, "float")
    planes, tiles = _tiles(g, width)
    columns = (tiles.down - 1) * planes.pitch + tiles.across
    tile = _register_tile(runtime, width, columns)
    blocks = ceil_div(columns, tile.columns)
    enough = blocks * g.images * g.groups >= 2 * runtime.features.compute_units
    return enough and 9 * g.pixels >= _MIN_GAIN * _TILE * blocks * tile.columns


@dataclass(frozen=True, slots=True)
class _TapStrides:
    """The first tap's offset in a window of the weights, and the strides to the next row and column."""

    start: int
    row: int
    column: int


def forward(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launches of the convolution, with its bias."""
    g, weight = c.geometry, c.second
    steps = weight.strides
    weights = Weights(weight, 1, g.filters, g.channels, g.filters * steps[0], steps[0], steps[1])
    return _convolve(runtime, g, c, weights, _TapStrides(0, steps[2], steps[3]))


def input_grad(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launches of the input gradient, as a convolution with flipped windows."""
    g, weight = c.geometry, c.second
    steps = weight.strides
    weights = Weights(weight, 1, g.channels, g.filters, g.filters * steps[0], steps[1], steps[0])
    taps = _TapStrides(2 * steps[2] + 2 * steps[3], -steps[2], -steps[3])
    return _convolve(runtime, as_forward_conv(g), c, weights, taps)


def _tiles(g: Geometry, slack: int) -> tuple[TapPlanes, Phase]:
    """Return the input as tiles of 4 by 4 pixels at distances of 2: the taps of a convolution with windows of that size."""
    tiles = (ceil_div(g.result[0], 2), ceil_div(g.result[1], 2))
    return input_planes(replace(g, kernel=(4, 4), stride=(2, 2), result=tiles), slack)


def _register_tile(runtime: Runtime, width: int, columns: int) -> RegisterTile:
    """Return the tile that wastes the fewest columns."""
    vectors = min((3, 2), key=lambda v: (round_up(columns, v * width), -v))
    return RegisterTile(_WIDE_ROWS if registers(runtime.features) == 32 else _NARROW_ROWS, vectors, width)


def _convolve(runtime: Runtime, g: Geometry, c: Convolution, weights: Weights, taps: _TapStrides) -> Launch:
    """Convolve the images in argument 0 with `weights`; the bias is that of `c`."""
    workspace, real = c.target + 1, real_type(c.out.dtype)
    width = lanes(runtime, real)
    planes, tiles = _tiles(g, width)
    columns = (tiles.down - 1) * planes.pitch + tiles.across
    tile = _register_tile(runtime, width, columns)
    packed = packed_planes(runtime, c.first, 0, workspace, planes, real, beyond=tile.columns)
    definitions: dict[str, str | int | bool] = {
        "REAL": real,
        "WIDTH": width,
        "ROWS": tile.rows,
        "DTYPE": weights.spec.dtype.name,
    }
    panels = ceil_div(g.filters, tile.rows)
    kernel: Args = {
        "w": Tensor(weights.tensor),
        "w_start": taps.start,
        "w_group": weights.group_step,
        "w_filter": weights.row_step,
        "w_channel": weights.channel_step,
        "w_row": taps.row,
        "w_column": taps.column,
    }
    transform = runtime.launch(
        "conv/cpu_winograd",
        definitions | {"BAND": BAND},
        {
            **kernel,
            "packed": Workspace(workspace + 1),
            "groups": g.groups,
            "channels": g.channels,
            "filters": g.filters,
        },
        (ceil_div(g.channels, BAND), panels, g.groups),
        (1, 1, 1),
        kernel="winograd_weights",
    )
    weights_bytes = g.groups * panels * tile.rows * _TILE * g.channels * itemsize(real)
    workers = min(work_items(runtime), ceil_div(columns, tile.columns) * g.images * g.groups)
    args: Args = {
        **kernel,
        "planes": packed.memory,
        "weights": Workspace(workspace + 1),
        "out": Tensor(c.target),
        "scratch": Workspace(workspace + 2),
        "tap_offsets": Table(tiles.places),
        "images": g.images,
        "groups": g.groups,
        "channels": g.channels,
        "filters": g.filters,
        "pitch": planes.pitch,
        "tiles_down": tiles.down,
        "tiles_across": tiles.across,
        "down": g.result[0],
        "across": g.result[1],
        "workers": workers,
        "planes_image": packed.image,
        "planes_channel": packed.channel,
    }
    if c.bias is not None:
        args["bias"] = Tensor(c.bias)
    multiply = runtime.launch(
        "conv/cpu_winograd",
        definitions | {"OUT_DTYPE": c.out.dtype.name, "VECTORS": tile.vectors, "BIAS": c.bias is not None},
        args,
        (workers,),
        (1,),
    )
    scratch_bytes = workers * _TILE * g.channels * tile.columns * itemsize(real)
    return LaunchSequence((*packed.steps, transform, multiply), (packed.nbytes, weights_bytes, scratch_bytes))
