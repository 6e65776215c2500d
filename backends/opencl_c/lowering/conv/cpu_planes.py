"""Convolution and input gradient on CPUs, from tap planes (`problems.conv_planes`).

Tap planes are padded copies of the channels, in which every tap of the kernel is a constant offset. Rows of results have gaps
of unused columns between them, unless each column of the kernel has separate, gapless planes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Table, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.common.problems.conv_planes import (
    Phase,
    TapPlanes,
    input_grad_planes,
    input_grad_planes_gapless,
    input_planes,
)
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.cpu_layout import (
    CACHED_PLANES_BYTES,
    PACK_COST,
    Product,
    forward_product,
    input_grad_product,
    is_real,
    itemsize,
    lanes,
    layout_table,
    packed_planes,
    packed_weights,
    planes_in_place,
    registers,
    work_items,
)
from polyhal.backends.opencl_c.lowering.gemm.cpu_panels import RegisterTile
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.protocol import Launch

WEIGHTS_BYTES = 1 << 19
"""Maximum bytes of weights that a work-item reads repeatedly: they stay in the second-level cache.

With more, images are packed by a separate launch, and gapless planes are not considered.
"""
_CHANNELS_AHEAD = 2
"""Channels of the planes to prefetch.

Without it a tile's loads stalled on the second-level cache for a third of the time.
"""
_UNLIMITED = 1 << 31
"""`last_start` for packed planes: it is safe to read past their end."""
_WIDE_TILES = {(8, 3): 1.0, (8, 2): 1.12, (6, 4): 1.06, (4, 6): 1.1, (1, 8): 2.2}
"""Relative time per multiply-add of register tiles (rows, vectors) with 32 registers. A single row is bound by loads."""
_NARROW_TILES = {(4, 3): 1.0, (4, 2): 1.1, (1, 7): 2.2}
"""Relative time per multiply-add of register tiles with 16 registers."""

PLANES = Family[RegisterTile](
    "conv_planes",
    {"rows": (1, 4, 6, 8), "vectors": (2, 3, 4, 6, 8)},
    # Accumulators, vectors of the plane and a weight stay in registers.
    lambda features, tile: (tile.rows + 1) * tile.vectors + 1 <= registers(features),
)


def register_tile(runtime: Runtime, real: str, filters: int, columns: int) -> RegisterTile:
    """Return the fastest tile for `filters` rows of `columns` columns."""
    _, (rows, vectors) = _fastest(runtime, real, filters, columns)
    default = RegisterTile(rows, vectors, lanes(runtime, real))
    return runtime.tuning.choose(PLANES, f"{size_class(filters, columns)} of {itemsize(real)} bytes", default)


def _fastest(runtime: Runtime, real: str, filters: int, columns: int) -> tuple[float, tuple[int, int]]:
    """Return (time, (rows, vectors)) of the fastest tile: time per term of all sums, in multiply-adds of the best tile."""
    width = lanes(runtime, real)
    shapes = _WIDE_TILES if registers(runtime.features) == 32 else _NARROW_TILES

    def time(shape: tuple[int, int]) -> float:
        return round_up(filters, shape[0]) * round_up(columns, shape[1] * width) * shapes[shape]

    return min((time(shape), shape) for shape in shapes)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Planes, and the phases of results that are computed from them."""

    planes: TapPlanes
    phases: Sequence[Phase]

    @property
    def columns(self) -> int:
        """Columns of the largest phase, including the gaps between its rows."""
        return max((p.down - 1) * self.planes.pitch + p.across for p in self.phases)

    @property
    def taps(self) -> int:
        """Taps of all phases."""
        return sum(len(p.taps) for p in self.phases)

    @property
    def reach(self) -> int:
        """Upper bound of the pixels of a plane that any phase reads."""
        return self.columns + max((offset for p in self.phases for offset in p.places), default=0)


def _fits_cache(p: Product, layout: _Layout) -> bool:
    """Return whether the planes of an image stay in a cache."""
    return p.weights.channels * layout.planes.channel * itemsize(p.real) <= CACHED_PLANES_BYTES


def _choose_layout(runtime: Runtime, p: Product, layouts: Sequence[_Layout]) -> _Layout:
    """Return the layout with the least time per channel for packing and for the multiply-adds of all taps and filters."""

    def time(layout: _Layout) -> float:
        multiply = _fastest(runtime, p.real, p.weights.rows, layout.columns)[0] * layout.taps
        return multiply + PACK_COST * layout.planes.channel

    return min(layouts, key=time)


def _correlate(runtime: Runtime, p: Product, plain: _Layout, gapless: _Layout | None) -> Launch:
    """Build the launch of the product, from the faster of two layouts."""
    workers = work_items(runtime)
    weight_bytes = p.geometry.filters * p.geometry.taps * itemsize(p.real)
    # Each image streams through all weights, so these should stay in a cache.
    cached = p.count >= workers and weight_bytes <= WEIGHTS_BYTES
    layouts = [plain, gapless] if gapless and cached and _fits_cache(p, gapless) else [plain]
    layout = _choose_layout(runtime, p, layouts)
    tile = register_tile(runtime, p.real, p.weights.rows, layout.columns)
    inside = layout.columns >= tile.columns and layout.reach <= layout.planes.rows * layout.planes.pitch
    in_place = is_real(p.images, p.real) and layout.planes.matches(p.images) and inside
    if not in_place and cached and _fits_cache(p, layout):
        return _packing_launch(runtime, p, layout, tile, workers)
    return _prepacked_launch(runtime, p, layout, tile, workers, in_place=in_place)


def _packing_launch(runtime: Runtime, p: Product, layout: _Layout, tile: RegisterTile, workers: int) -> Launch:
    """Build a launch in which every work-item packs the images that it multiplies."""
    pack, weights_bytes = packed_weights(runtime, p, layout.phases, tile)
    _, _, x_row, x_column = p.images.strides
    multiply = runtime.launch(
        "conv/cpu_planes",
        {**_definitions(runtime, p, tile), "PREPACKED": False},
        {
            "x": Tensor(0),
            "planes": Workspace(p.target + 1),
            "layout": layout_table(layout.planes),
            **_args(p, layout),
            "last_start": _UNLIMITED,
            "x_image": p.images.strides[0],
            "x_channel": p.images.strides[1],
            "x_row": x_row,
            "x_column": x_column,
            "images": p.geometry.images,
            "workers": workers,
            "columns": layout.columns,
        },
        (workers,),
        (1,),
    )
    image_bytes = (p.weights.channels * layout.planes.channel + tile.columns) * itemsize(p.real)
    return LaunchSequence((pack, multiply), (workers * image_bytes, weights_bytes))


def _prepacked_launch(
    runtime: Runtime, p: Product, layout: _Layout, tile: RegisterTile, workers: int, *, in_place: bool
) -> Launch:
    """Build the launches that pack the images, unless they have the layout of planes, and multiply."""
    pack, weights_bytes = packed_weights(runtime, p, layout.phases, tile)
    planes = (
        planes_in_place(p.images, 0)
        if in_place
        else packed_planes(runtime, p.images, 0, p.target + 1, layout.planes, p.real, beyond=tile.columns)
    )
    tiles, panels = ceil_div(layout.columns, tile.columns), ceil_div(p.weights.rows, tile.rows)
    panel_bytes = weights_bytes // (p.geometry.groups * panels)
    panels_each = ceil_div(panels, ceil_div(panels, max(1, WEIGHTS_BYTES // panel_bytes)))
    while panels_each > 1 and tiles * len(layout.phases) * ceil_div(panels, panels_each) * p.count < workers:
        panels_each = ceil_div(panels_each, 2)
    multiply = runtime.launch(
        "conv/cpu_planes",
        _definitions(runtime, p, tile),
        {
            "planes": planes.memory,
            **_args(p, layout),
            "last_start": layout.columns - tile.columns if in_place else _UNLIMITED,
            "x_image": planes.image,
            "x_channel": planes.channel,
            "panels_each": panels_each,
        },
        (tiles, p.count, len(layout.phases) * ceil_div(panels, panels_each)),
        (1, 1, 1),
    )
    return LaunchSequence((*planes.steps, pack, multiply), (planes.nbytes or 1, weights_bytes))


def _definitions(runtime: Runtime, p: Product, tile: RegisterTile) -> dict[str, str | int | bool]:
    return {
        "DTYPE": p.images.dtype.name,
        "OUT_DTYPE": p.out.dtype.name,
        "REAL": p.real,
        "WIDTH": tile.width,
        "ROWS": tile.rows,
        "VECTORS": tile.vectors,
        "BIAS": p.bias is not None,
        "CHANNELS_AHEAD": _CHANNELS_AHEAD if runtime.features.quirks.builtin_prefetch else 0,
    }


def _args(p: Product, layout: _Layout) -> Args:
    """Return the arguments of both variants of conv/cpu_planes.cl."""
    _, channel, row, column = p.out.strides
    pitch, phases = layout.planes.pitch, layout.phases
    if len(phases) == 1 and pitch == phases[0].across and row == pitch * column:
        # Rows of the result that are consecutive in the planes and in the output are merged to one row.
        pitch, phases = layout.columns, [replace(phases[0], down=1, across=layout.columns)]
    spread = p.geometry.stride if len(phases) > 1 else (1, 1)
    args: Args = {
        "weights": Workspace(p.target + 2),
        "out": Tensor(p.target),
        "table": _table(phases, row, column),
        "phases": len(phases),
        "taps": layout.taps,
        "groups": p.geometry.groups,
        "channels": p.weights.channels,
        "filters": p.weights.rows,
        "pitch": pitch,
        "out_channel": channel,
        "out_row": spread[0] * row,
        "out_column": spread[1] * column,
    }
    return args if p.bias is None else args | {"bias": Tensor(p.bias)}


def _table(phases: Sequence[Phase], row: int, column: int) -> Table:
    """Return the argument `table` of conv/cpu_planes.cl."""
    phase_info: list[int] = []
    offsets: list[int] = []
    for p in phases:
        phase_info += [len(offsets), len(p.taps), p.down, p.across, p.first[0] * row + p.first[1] * column]
        offsets += p.places
    return Table((*phase_info, *offsets))


def forward(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launches of the convolution, with its bias."""
    product = forward_product(c)
    slack = lanes(runtime, product.real)
    (plain, phase), (gapless, gapless_phase) = (input_planes(c.geometry, slack, gapless=gap) for gap in (False, True))
    return _correlate(runtime, product, _Layout(plain, [phase]), _Layout(gapless, [gapless_phase]))


def input_grad(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launches of the input gradient, one phase per remainder of a pixel's coordinates by the stride."""
    g, product = c.geometry, input_grad_product(c)
    slack = lanes(runtime, product.real)
    gapless = _Layout(*input_grad_planes_gapless(g, slack)) if g.stride == (1, 1) else None
    return _correlate(runtime, product, _Layout(*input_grad_planes(g, slack)), gapless)
