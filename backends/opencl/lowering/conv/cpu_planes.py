"""Convolution on CPUs, from planes in which every tap of a window is a plain shift (see problems.conv_planes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Table, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Geometry
from polyhal.backends.common.problems.conv_planes import (
    Phase,
    TapPlanes,
    input_grad_planes,
    input_grad_planes_gapless,
    input_planes,
)
from polyhal.backends.opencl.lowering.conv.cpu_layout import (
    BAND,
    IMAGES_BYTES,
    PLACING,
    Weights,
    images_as,
    is_real,
    itemsize,
    lanes,
    registers,
    table,
    work_items,
)
from polyhal.backends.opencl.lowering.gemm.arguments import longs, uints
from polyhal.backends.opencl.lowering.gemm.cpu_panels import RegisterTile
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.kernels.tuning import Family, size_class
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_WEIGHTS_BYTES = 1 << 19
"""Weights that a work-item goes through: they stay in the second-level cache for the next one."""


PLANES = Family[RegisterTile](
    "conv_planes",
    {"rows": (1, 4, 6, 8), "vectors": (2, 3, 4, 6, 8)},
    # Sums, vectors of the plane and a weight stay in registers.
    lambda features, tile: (tile.rows + 1) * tile.vectors + 1 <= registers(features),
)


def register_tile(runtime: Runtime, real: str, filters: int, columns: int) -> RegisterTile:
    """The tile that makes `filters` rows of `columns` in the least time."""
    _, (rows, vectors) = _fastest(runtime, real, filters, columns)
    default = RegisterTile(rows, vectors, lanes(runtime, real))
    return runtime.tuning.choose(PLANES, f"{size_class(filters, columns)} of {itemsize(real)} bytes", default)


def _fastest(runtime: Runtime, real: str, filters: int, columns: int) -> tuple[float, tuple[int, int]]:
    """The shape of that tile and its time, in sums of the fastest one, given the relative time per sum of each shape."""
    width = lanes(runtime, real)
    # A tile of one row waits for its loads.
    wide = {(8, 3): 1.0, (8, 2): 1.12, (6, 4): 1.06, (4, 6): 1.1, (1, 8): 2.2}
    narrow = {(4, 3): 1.0, (4, 2): 1.1, (1, 7): 2.2}
    shapes = wide if registers(runtime.features) == 32 else narrow

    def time(shape: tuple[int, int]) -> float:
        return round_up(filters, shape[0]) * round_up(columns, shape[1] * width) * shapes[shape]

    return min((time(shape), shape) for shape in shapes)


Layout = tuple[TapPlanes, Sequence[Phase]]


def _columns(layout: Layout) -> int:
    """Of the largest phase, with those between its rows."""
    planes, phases = layout
    return max((p.down - 1) * planes.pitch + p.across for p in phases)


def _cheapest(runtime: Runtime, real: str, filters: int, layouts: Sequence[Layout]) -> Layout:
    """The layout that takes the least time for each channel: to be made, and to be gone through by all taps and filters."""

    def time(layout: Layout) -> float:
        planes, phases = layout
        sums = _fastest(runtime, real, filters, _columns(layout))[0] * sum(len(p.taps) for p in phases)
        return sums + PLACING * planes.channel

    return min(layouts, key=time)


def _fits(layout: Layout, channels: int, real: str) -> bool:
    """Whether the planes of an image stay in a cache."""
    return channels * layout[0].channel * itemsize(real) <= IMAGES_BYTES


def _correlate(
    runtime: Runtime,
    name: str,
    g: Geometry,
    source: tuple[Spec, int],
    weights: Weights,
    plain: Layout,
    gapless: Layout | None,
    out: tuple[Spec, int],
    bias: int | None,
) -> Launch:
    """Slide `weights` over the planes of `source`; it and the output are given with their places among the arguments."""
    images, place = source
    result, target = out
    workspace = target + 1
    real = real_type(result.dtype)
    workers = work_items(runtime)
    # Weights that do not stay in a cache are not to be gone through for one image after the other.
    cached = g.images * g.groups >= workers and g.filters * g.taps * itemsize(real) <= _WEIGHTS_BYTES
    layouts = [plain, gapless] if gapless and cached and _fits(gapless, weights.channels, real) else [plain]
    planes, phases = layout = _cheapest(runtime, real, weights.rows, layouts)
    columns = _columns(layout)
    tile = register_tile(runtime, real, weights.rows, columns)
    panels = ceil_div(weights.rows, tile.rows)
    taps = sum(len(p.taps) for p in phases)
    strides = weights.spec.strides
    pack = runtime.launch(
        "pack_weights", "conv/cpu_planes_pack",
        {"DTYPE": weights.spec.dtype.name, "REAL": real, "WIDTH": tile.width, "ROWS": tile.rows, "BAND": BAND},
        [
            Tensor(weights.place), Workspace(workspace + 1),
            Table(tuple(r * strides[2] + s * strides[3] for p in phases for r, s in p.taps)),
            *uints(taps, g.groups, weights.channels, weights.rows),
            *longs(weights.group_step, weights.row_step, weights.channel_step),
        ],
        (ceil_div(weights.channels, BAND), panels, g.groups), (1, 1, 1), kernel="pack_weights",
    )  # fmt: skip
    # A stride may leave an image that no tap reaches.
    weights_bytes = g.groups * panels * tile.rows * weights.channels * max(taps, 1) * itemsize(real)
    _, channel, row, column = result.strides
    pitch = planes.pitch
    if len(phases) == 1 and pitch == phases[0].across and row == pitch * column:
        # Rows of the result that follow each other are one.
        pitch, phases = columns, [replace(phases[0], down=1, across=columns)]
    spread = g.stride if len(phases) > 1 else (1, 1)
    steps = longs(channel, spread[0] * row, spread[1] * column)
    # Tiles of a phase that has fewer columns than others must not reach beyond the planes either.
    reach = columns + max((place for p in phases for place in p.places), default=0)
    inside = columns >= tile.columns and reach <= planes.rows * planes.pitch
    packed = not (is_real(images, real) and planes.matches(images) and inside)
    last = (1 << 31) if packed else columns - tile.columns
    where = [
        _table(phases, row, column),
        *uints(len(phases), taps, g.groups, weights.channels, weights.rows, pitch, last),
    ]
    operands = [Workspace(workspace + 1), *([] if bias is None else [Tensor(bias)]), Tensor(target), *where]
    definitions: dict[str, str | int | bool] = {
        "DTYPE": images.dtype.name, "OUT_DTYPE": result.dtype.name, "REAL": real, "WIDTH": tile.width,
        "ROWS": tile.rows, "VECTORS": tile.vectors, "BIAS": bias is not None,
    }  # fmt: skip
    image_bytes = (weights.channels * planes.channel + tile.columns) * itemsize(real)
    if packed and cached and _fits(layout, weights.channels, real):
        multiply = runtime.launch(
            name, "conv/cpu_planes", definitions | {"LAID_OUT": False},
            [
                Tensor(place), Workspace(workspace), table(planes), *operands, *uints(g.images, workers, columns),
                *longs(*images.strides), *steps,
            ],
            (workers,), (1,),
        )  # fmt: skip
        return LaunchSequence(name, (pack, multiply), (workers * image_bytes, weights_bytes))
    found = images_as(runtime, images, place, workspace, planes, real, packed=packed, beyond=tile.columns)
    tiles = ceil_div(columns, tile.columns)
    panel_bytes = weights_bytes // (g.groups * panels)
    block = ceil_div(panels, ceil_div(panels, max(1, _WEIGHTS_BYTES // panel_bytes)))
    while block > 1 and tiles * len(phases) * ceil_div(panels, block) * g.images * g.groups < workers:
        block = ceil_div(block, 2)
    multiply = runtime.launch(
        name, "conv/cpu_planes", definitions, [*found.parameters, *operands, *uints(block), *found.strides, *steps],
        (tiles, g.images * g.groups, len(phases) * ceil_div(panels, block)), (1, 1, 1),
    )  # fmt: skip
    return LaunchSequence(name, (*found.steps, pack, multiply), (found.nbytes or 1, weights_bytes))


def _table(phases: Sequence[Phase], row: int, column: int) -> Table:
    """`table` of conv/cpu_planes.cl."""
    facts: list[int] = []
    places: list[int] = []
    for p in phases:
        facts += [len(places), len(p.taps), p.down, p.across, p.first[0] * row + p.first[1] * column]
        places += p.places
    return Table((*facts, *places))


def forward(runtime: Runtime, c: Convolution) -> Launch:
    g, x, weight, out = c.geometry, c.first, c.second, c.out
    steps = weight.strides
    weights = Weights(weight, 1, g.filters, g.channels, g.filters * steps[0], steps[0], steps[1])
    slack = lanes(runtime, real_type(out.dtype))
    plain, gapless = (
        (planes, [phase]) for planes, phase in (input_planes(g, slack), input_planes(g, slack, gapless=True))
    )
    return _correlate(runtime, "conv2d", g, (x, 0), weights, plain, gapless, (out, c.target), c.bias)


def input_grad(runtime: Runtime, c: Convolution) -> Launch:
    g, slope, weight, out = c.geometry, c.first, c.second, c.out
    steps = weight.strides
    weights = Weights(weight, 1, g.channels, g.filters, g.filters * steps[0], steps[1], steps[0])
    slack = lanes(runtime, real_type(out.dtype))
    plain, gapless = input_grad_planes(g, slack), input_grad_planes_gapless(g, slack) if g.stride == (1, 1) else None
    return _correlate(runtime, "conv2d_input_grad", g, (slope, 0), weights, plain, gapless, (out, c.target), None)
