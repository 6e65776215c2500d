"""Convolution with windows of 3 by 3 and stride 1 on CPUs by minimal filtering, where that saves time.

The rounding errors are about those of the plain kernel, whose sums are longer. But an infinite pixel makes all results of its
tiles NaN, also those whose windows it lies beside.
"""

from __future__ import annotations

from dataclasses import replace

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Table, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Geometry
from polyhal.backends.common.problems.conv_planes import Phase, TapPlanes, as_forward_conv, input_planes
from polyhal.backends.opencl.lowering.conv.cpu_layout import (
    BAND,
    Weights,
    images_as,
    itemsize,
    lanes,
    registers,
    work_items,
)
from polyhal.backends.opencl.lowering.gemm.arguments import longs, uints
from polyhal.backends.opencl.lowering.gemm.cpu_panels import RegisterTile
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_TILE = 16
_LEAST_CHANNELS = 16
"""Channels and filters from which the transformations cost less than the multiplications saved."""
_WEIGHTS_BYTES = 8 << 20
"""Transformed weights, which are 16/9 as large, at most; more would come from memory again and again."""
_GAIN = 1.4
"""Multiplications saved at least, counted with those made in vain."""


def pays(runtime: Runtime, g: Geometry, out: Spec) -> bool:
    """Whether these kernels suit a convolution of that geometry, and are faster."""
    if (g.kernel, g.stride, g.dilation) != ((3, 3), (1, 1), (1, 1)) or real_type(out.dtype) != "float":
        return False
    if min(g.channels, g.filters) < _LEAST_CHANNELS or registers(runtime.features) < 32:
        return False
    if _TILE * g.groups * g.channels * g.filters * 4 > _WEIGHTS_BYTES:
        return False
    planes, tiles = _tiles(g, 16)
    columns = (tiles.down - 1) * planes.pitch + tiles.across
    tile = _register_tile(16, columns)
    blocks = ceil_div(columns, tile.columns)
    enough = blocks * g.images * g.groups >= 2 * runtime.features.compute_units
    return enough and 9 * g.pixels >= _GAIN * _TILE * blocks * tile.columns


def forward(runtime: Runtime, c: Convolution) -> Launch:
    g, x, weight, out = c.geometry, c.first, c.second, c.out
    steps = weight.strides
    weights = Weights(weight, 1, g.filters, g.channels, g.filters * steps[0], steps[0], steps[1])
    return _filter(runtime, "conv2d", g, (x, 0), weights, (0, steps[2], steps[3]), (out, c.target), c.bias)


def input_grad(runtime: Runtime, c: Convolution) -> Launch:
    g, slope, weight, out = c.geometry, c.first, c.second, c.out
    steps = weight.strides
    weights = Weights(weight, 1, g.channels, g.filters, g.filters * steps[0], steps[1], steps[0])
    taps = (2 * steps[2] + 2 * steps[3], -steps[2], -steps[3])
    return _filter(runtime, "conv2d_input_grad", as_forward_conv(g), (slope, 0), weights, taps, (out, c.target), None)


def _tiles(g: Geometry, slack: int) -> tuple[TapPlanes, Phase]:
    """The input as tiles of 4 by 4 pixels, two apart, which are the taps of a convolution with windows of that size."""
    tiles = (ceil_div(g.result[0], 2), ceil_div(g.result[1], 2))
    return input_planes(replace(g, kernel=(4, 4), stride=(2, 2), result=tiles), slack)


def _register_tile(width: int, columns: int) -> RegisterTile:
    """Fewest columns in vain."""
    vectors = min((3, 2), key=lambda v: (round_up(columns, v * width), -v))
    return RegisterTile(8, vectors, width)


def _filter(
    runtime: Runtime,
    name: str,
    g: Geometry,
    source: tuple[Spec, int],
    weights: Weights,
    taps: tuple[int, int, int],
    out: tuple[Spec, int],
    bias: int | None,
) -> Launch:
    """`taps` are the place of the first tap in a window and the strides to the next in its column and row."""
    images, place = source
    result, target = out
    workspace = target + 1
    real = real_type(result.dtype)
    width = lanes(runtime, real)
    planes, tiles = _tiles(g, width)
    columns = (tiles.down - 1) * planes.pitch + tiles.across
    tile = _register_tile(width, columns)
    found = images_as(runtime, images, place, workspace, planes, real, packed=True, beyond=tile.columns)
    panels = ceil_div(g.filters, tile.rows)
    shared: dict[str, str | int | bool] = {
        "REAL": real, "WIDTH": width, "ROWS": tile.rows, "DTYPE": weights.spec.dtype.name
    }  # fmt: skip
    transform = runtime.launch(
        "winograd_weights", "conv/cpu_winograd", shared | {"BAND": BAND},
        [
            Tensor(weights.place), Workspace(workspace + 1), *uints(g.groups, g.channels, g.filters),
            *longs(taps[0], weights.group_step, weights.row_step, weights.channel_step, *taps[1:]),
        ],
        (ceil_div(g.channels, BAND), panels, g.groups), (1, 1, 1), kernel="winograd_weights",
    )  # fmt: skip
    weights_bytes = g.groups * panels * tile.rows * _TILE * g.channels * itemsize(real)
    workers = min(work_items(runtime), ceil_div(columns, tile.columns) * g.images * g.groups)
    multiply = runtime.launch(
        name, "conv/cpu_winograd",
        shared | {"OUT_DTYPE": result.dtype.name, "VECTORS": tile.vectors, "BIAS": bias is not None},
        [
            Workspace(workspace), Workspace(workspace + 1), *([] if bias is None else [Tensor(bias)]), Tensor(target),
            Workspace(workspace + 2), Table(tiles.places), *uints(g.images, g.groups, g.channels, g.filters),
            *uints(planes.pitch, tiles.down, tiles.across, *g.result, workers), *found.strides,
        ],
        (workers,), (1,),
    )  # fmt: skip
    scratch_bytes = workers * _TILE * g.channels * tile.columns * itemsize(real)
    return LaunchSequence(name, (*found.steps, transform, multiply), (found.nbytes, weights_bytes, scratch_bytes))
