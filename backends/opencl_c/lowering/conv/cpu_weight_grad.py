"""The weight gradient of a convolution on CPUs, from tap planes (see backends.common.problems.conv_planes)."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Table, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Geometry
from polyhal.backends.common.problems.conv_planes import Phase, TapPlanes, input_planes, output_grad_planes
from polyhal.backends.opencl_c.lowering.conv import cpu_weight_grad_columns
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.cpu_layout import (
    CACHED_PLANES_BYTES,
    PACK_COST,
    Planes,
    is_real,
    itemsize,
    lanes,
    layout_table,
    packed_planes,
    planes_in_place,
    registers,
    work_items,
)
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_WIDE_TILES = {(4, 6): 1.0, (1, 9): 2.2}
"""Relative time per multiply-add of register tiles (rows, pairs) with 32 registers. A single row is bound by loads."""
_NARROW_TILES = {(4, 3): 1.0, (1, 7): 2.0}
"""Relative time per multiply-add of register tiles with 16 registers."""
_CHUNK = 2048
"""Default of WeightTile.chunk."""
_REUSE = 1152
"""Default of WeightTile.reuse."""
_SUM_COST = 1.1
"""Time of a multiply-add of this kernel, which sums over vector lanes, relative to a multiply-add of a matrix product."""


@dataclass(frozen=True, slots=True)
class WeightTile:
    """Tiling of conv/cpu_weight_grad.cl."""

    rows: int
    """Filters of a register tile."""
    pairs: int
    """Pairs of channel and tap of a register tile."""
    chunk: int
    """Maximum columns summed at a time: the gradients of `rows` filters stay in the first-level cache."""
    reuse: int
    """Multiply-adds per pixel read that a work-item aims at, so as not to wait for memory, if enough work-items remain."""


WEIGHTS = Family[WeightTile](
    "conv_planes_weight_grad",
    {"rows": (1, 3, 4, 6), "pairs": (3, 4, 6, 9), "chunk": (1024, 2048, 4096), "reuse": (64, 288, 1152)},
    # Accumulators, vectors of the planes and a gradient stay in registers.
    lambda features, tile: (tile.rows + 1) * tile.pairs + 1 <= registers(features),
)


def weight_tile(runtime: Runtime, real: str, filters: int, pairs: int) -> WeightTile:
    """Return the tile that wastes the least time on rows past the last filter."""
    shapes = _WIDE_TILES if registers(runtime.features) == 32 else _NARROW_TILES
    rows, across = min(shapes, key=lambda shape: round_up(filters, shape[0]) * shapes[shape])
    default = WeightTile(rows, across, _CHUNK, _REUSE)
    return runtime.tuning.choose(WEIGHTS, f"{size_class(filters, pairs)} of {itemsize(real)} bytes", default)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The planes of the input and of the output's gradient, and whether either already has that layout in memory."""

    planes: TapPlanes
    phase: Phase
    grads: TapPlanes
    columns: int
    """Columns, rounded up to whole vectors."""
    planes_in_place: bool
    grads_in_place: bool

    def time(self, g: Geometry) -> int:
        """Return the time per image, in multiply-adds."""
        packed = 0 if self.planes_in_place else g.channels * self.planes.channel
        packed += 0 if self.grads_in_place else g.filters * self.grads.channel
        return self.columns * g.filters * g.taps + PACK_COST * packed


def _layout(c: Convolution, real: str, width: int, *, gapless: bool = False) -> _Layout:
    g = c.geometry
    planes, phase = input_planes(g, width, gapless=gapless)
    grads = output_grad_planes(g, planes.pitch, width)
    count = (g.result[0] - 1) * planes.pitch + g.result[1]
    columns = round_up(count, width)
    planes_match, grads_match = (
        columns == count and is_real(spec, real) and layout.matches(spec)
        for spec, layout in ((c.second, planes), (c.first, grads))
    )
    return _Layout(planes, phase, grads, columns, planes_match, grads_match)


@dataclass(frozen=True, slots=True)
class _Multiplication:
    """The launches that compute the sums, as `splits` partial sums each."""

    steps: tuple[Launch, ...]
    workspace: tuple[int, int]
    """Bytes for gradients and for images."""
    splits: int


def weight_grad(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launches of the weight gradient, with split-K if it has too few elements to keep every core busy."""
    g, out = c.geometry, c.out
    real = real_type(out.dtype)
    width = lanes(runtime, real)
    tile = weight_tile(runtime, real, g.filters, g.taps)
    plain, gapless = _layout(c, real, width), _layout(c, real, width, gapless=True)
    columns = cpu_weight_grad_columns.columns(runtime, c)
    cached = [layout for layout in (plain, gapless) if _images_each(runtime, g, layout, tile, itemsize(real))]
    times = [layout.time(g) for layout in cached or [plain]]
    if columns is not None and cpu_weight_grad_columns.time(c, columns) < _SUM_COST * min(times):
        sums = Tensor(2) if _writes_result(columns.splits, out, real) else Workspace(5)
        multiply, nbytes = cpu_weight_grad_columns.launch(runtime, c, columns, sums)
        multiplication = _Multiplication((multiply,), (nbytes, 1), columns.splits)
    elif cached:
        multiplication = _packing_launch(runtime, c, min(cached, key=lambda layout: layout.time(g)), tile)
    else:
        multiplication = _prepacked_launches(runtime, c, plain, tile)
    steps, workspace, splits = multiplication.steps, multiplication.workspace, multiplication.splits
    if _writes_result(splits, out, real):
        return LaunchSequence(steps, workspace)
    reduce = runtime.launch(
        "gemm/split_k_reduce",
        {"OUT_DTYPE": out.dtype.name, "DTYPE": out.dtype.name, "REAL": real, "BIAS": False},
        {
            "partial": Workspace(5),
            "out": Tensor(2),
            "size": out.size,
            "n": g.taps,
            "splits": splits,
            "m": g.filters,
            "batch1": 1,
            "batch2": 1,
        },
        (out.size,),
        (runtime.features.group_size,),
    )
    partial_bytes = splits * out.size * itemsize(real)
    return LaunchSequence((*steps, reduce), (*workspace, partial_bytes))


def _images_each(runtime: Runtime, g: Geometry, layout: _Layout, tile: WeightTile, item: int) -> int:
    """Return how many images a work-item should pack itself at a time; 0 if images are packed beforehand.

    The planes have to fit in a cache and yet form long sums, and the images have to suffice for all cores.
    """
    grads = 0 if layout.grads_in_place else layout.grads.channel
    image = (g.channels * layout.planes.channel + g.filters * grads) * item
    most = min(tile.chunk // layout.columns, CACHED_PLANES_BYTES // image)
    if layout.planes_in_place or 2 * most * layout.columns < tile.chunk or g.images * g.groups < work_items(runtime):
        return 0
    # Keep all cores busy to the end.
    return ceil_div(g.images, round_up(ceil_div(g.images, most), runtime.features.compute_units))


def _packing_launch(runtime: Runtime, c: Convolution, layout: _Layout, tile: WeightTile) -> _Multiplication:
    """Build a launch whose work-items pack the images that they multiply."""
    g, out = c.geometry, c.out
    real = real_type(out.dtype)
    images_each = _images_each(runtime, g, layout, tile, itemsize(real))
    splits = min(ceil_div(g.images, images_each), ceil_div(work_items(runtime), g.groups))
    channel = 0 if layout.grads_in_place else layout.grads.channel
    grads, planes = (
        splits * g.groups * images_each * n for n in (g.filters * channel, g.channels * layout.planes.channel)
    )
    strides = {
        f"{name}_{axis}": stride
        for name, spec in (("g", c.first), ("x", c.second))
        for axis, stride in zip(("image", "channel", "row", "column"), spec.strides, strict=True)
    }
    multiply = runtime.launch(
        "conv/cpu_weight_grad",
        {**_definitions(runtime, c, tile), "PREPACKED": False, "GRADS_IN_PLACE": layout.grads_in_place},
        {
            "g": Tensor(0),
            "grads": Workspace(3),
            "grads_layout": layout_table(layout.grads),
            "x": Tensor(1),
            "planes": Workspace(4),
            "layout": layout_table(layout.planes),
            **_args(g, layout, splits, images_each, out, real),
            **strides,
        },
        (splits, g.groups),
        (1, 1),
    )
    return _Multiplication((multiply,), (grads * itemsize(real) or 1, planes * itemsize(real)), splits)


def _prepacked_launches(runtime: Runtime, c: Convolution, layout: _Layout, tile: WeightTile) -> _Multiplication:
    """Build the launches that pack the images, unless they have the layout of planes, and multiply."""
    g, out = c.geometry, c.out
    real = real_type(out.dtype)
    grads = _planes(runtime, c.first, 0, 3, layout.grads, real, in_place=layout.grads_in_place)
    planes = _planes(runtime, c.second, 1, 4, layout.planes, real, in_place=layout.planes_in_place)
    chunks = ceil_div(layout.columns, tile.chunk)
    chunk = round_up(ceil_div(layout.columns, chunks), lanes(runtime, real))
    images_each = max(1, min(g.images, tile.chunk // chunk))
    parts = chunks * ceil_div(g.images, images_each)
    balanced = g.filters * g.groups * parts // work_items(runtime)
    filters_each = tile.rows * max(1, min(tile.reuse // len(layout.phase.taps), balanced) // tile.rows)
    tiles = ceil_div(g.filters, filters_each)
    splits = min(parts, ceil_div(work_items(runtime), tiles * g.groups))
    multiply = runtime.launch(
        "conv/cpu_weight_grad",
        _definitions(runtime, c, tile),
        {
            "grads": grads.memory,
            "planes": planes.memory,
            **_args(g, layout, splits, images_each, out, real),
            "chunk": chunk,
            "filters_each": filters_each,
            "g_image": grads.image,
            "g_channel": grads.channel,
            "x_image": planes.image,
            "x_channel": planes.channel,
        },
        (tiles, splits, g.groups),
        (1, 1, 1),
    )
    return _Multiplication((*grads.steps, *planes.steps, multiply), (grads.nbytes or 1, planes.nbytes or 1), splits)


def _planes(
    runtime: Runtime, images: Spec, tensor: int, workspace: int, planes: TapPlanes, real: str, *, in_place: bool
) -> Planes:
    if in_place:
        return planes_in_place(images, tensor)
    return packed_planes(runtime, images, tensor, workspace, planes, real)


def _definitions(runtime: Runtime, c: Convolution, tile: WeightTile) -> Definitions:
    real = real_type(c.out.dtype)
    return {
        "DTYPE": c.second.dtype.name,
        "REAL": real,
        "WIDTH": lanes(runtime, real),
        "ROWS": tile.rows,
        "COLUMNS": tile.pairs,
    }


def _args(g: Geometry, layout: _Layout, splits: int, images_each: int, out: Spec, real: str) -> Args:
    """Return the arguments of both variants of conv/cpu_weight_grad.cl."""
    return {
        "sums": Tensor(2) if _writes_result(splits, out, real) else Workspace(5),
        "tap_offsets": Table(layout.phase.places),
        "taps": len(layout.phase.taps),
        "channels": g.channels,
        "filters": g.filters,
        "images": g.images,
        "groups": g.groups,
        "count": layout.columns,
        "images_each": images_each,
        "splits": splits,
    }


def _writes_result(splits: int, out: Spec, real: str) -> bool:
    """Return whether the sums are written to the result directly, in its dtype."""
    return splits == 1 and is_real(out, real)
