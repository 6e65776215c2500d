"""The gradient of a convolution's weight on CPUs, from planes (see backends.common.problems.conv_planes)."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Table, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Geometry
from polyhal.backends.common.problems.conv_planes import Phase, TapPlanes, input_planes, output_grad_planes
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.conv.cpu_layout import (
    IMAGES_BYTES,
    PLACING,
    Step,
    images_as,
    is_real,
    itemsize,
    lanes,
    registers,
    table,
    work_items,
)
from polyhal.backends.opencl.lowering.gemm.arguments import longs, uints
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.kernels.tuning import Family, size_class
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch


@dataclass(frozen=True, slots=True)
class WeightTile:
    """How conv/cpu_weight_grad.cl works."""

    rows: int
    """Filters, and"""
    pairs: int
    """pairs of channel and tap that a register tile makes."""
    chunk: int
    """Columns at most that it sums at a time: the gradients of `rows` filters stay in the first-level cache."""
    reuse: int
    """Multiplications at least for each pixel that a work-item reads, so as not to wait for the memory."""


WEIGHTS = Family[WeightTile](
    "conv_planes_weight_grad",
    {"rows": (1, 3, 4, 6), "pairs": (3, 4, 6, 9), "chunk": (1024, 2048, 4096), "reuse": (64, 288, 1152)},
    # Sums, vectors of the planes and a gradient stay in registers.
    lambda features, tile: (tile.rows + 1) * tile.pairs + 1 <= registers(features),
)


def weight_tile(runtime: Runtime, real: str, filters: int, pairs: int) -> WeightTile:
    """The tile that computes fewest sums in vain; one of a single row waits for its loads."""
    wide = {(4, 6): 1.0, (1, 9): 2.2}
    narrow = {(4, 3): 1.0, (1, 7): 2.0}
    shapes = wide if registers(runtime.features) == 32 else narrow
    rows, across = min(shapes, key=lambda shape: round_up(filters, shape[0]) * shapes[shape])
    default = WeightTile(rows, across, chunk=2048, reuse=288)
    return runtime.tuning.choose(WEIGHTS, f"{size_class(filters, pairs)} of {itemsize(real)} bytes", default)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The planes of both operands, of which either may lie in memory like that."""

    planes: TapPlanes
    phase: Phase
    slopes: TapPlanes
    columns: int
    """Up to whole vectors."""
    planes_are_there: bool
    slopes_are_there: bool

    def time(self, g: Geometry) -> int:
        """For each image, in multiplications."""
        placed = 0 if self.planes_are_there else g.channels * self.planes.channel
        placed += 0 if self.slopes_are_there else g.filters * self.slopes.channel
        return self.columns * g.filters * g.taps + PLACING * placed


def _layout(c: Convolution, real: str, width: int, *, gapless: bool = False) -> _Layout:
    g = c.geometry
    planes, phase = input_planes(g, width, gapless=gapless)
    slopes = output_grad_planes(g, planes.pitch, width)
    count = (g.result[0] - 1) * planes.pitch + g.result[1]
    columns = round_up(count, width)
    planes_there, slopes_there = (
        columns == count and is_real(spec, real) and laid.matches(spec)
        for spec, laid in ((c.second, planes), (c.first, slopes))
    )
    return _Layout(planes, phase, slopes, columns, planes_there, slopes_there)


@dataclass(frozen=True, slots=True)
class _Multiplication:
    """What makes the sums, with what comes before it; `splits` work-items make a share of each."""

    steps: tuple[Step, ...]
    workspace: tuple[int, int]
    """Bytes for gradients and for images."""
    splits: int


def weight_grad(runtime: Runtime, c: Convolution) -> Launch:
    g, out = c.geometry, c.out
    real = real_type(out.dtype)
    width = lanes(runtime, real)
    tile = weight_tile(runtime, real, g.filters, g.taps)
    plain, gapless = _layout(c, real, width), _layout(c, real, width, gapless=True)
    cached = [found for found in (plain, gapless) if _images_together(runtime, g, found, tile, itemsize(real))]
    made = (
        _in_caches(runtime, c, min(cached, key=lambda found: found.time(g)), tile)
        if cached
        else _from_memory(runtime, c, plain, tile)
    )
    if _is_straight(made.splits, out, real):
        return LaunchSequence("conv2d_weight_grad", made.steps, made.workspace)
    total = runtime.launch(
        "matmul_sum", "gemm/split_k_reduce",
        {"OUT_DTYPE": out.dtype.name, "DTYPE": out.dtype.name, "REAL": real, "BIAS": False},
        {
            "partial": Workspace(5), "out": Tensor(2), "size": out.size, "n": g.taps, "splits": made.splits,
            "m": g.filters, "batch1": 1, "batch2": 1,
        },
        (out.size,), (runtime.features.group_size,),
    )  # fmt: skip
    sums_bytes = made.splits * out.size * itemsize(real)
    return LaunchSequence("conv2d_weight_grad", (*made.steps, total), (*made.workspace, sums_bytes))


def _images_together(runtime: Runtime, g: Geometry, layout: _Layout, tile: WeightTile, item: int) -> int:
    """How many images a work-item had better lay out itself at a time; 0 where it had better not.

    The planes have to fit in a cache and still give sums long enough, and there have to be enough images for all cores.
    """
    slopes = 0 if layout.slopes_are_there else layout.slopes.channel
    image = (g.channels * layout.planes.channel + g.filters * slopes) * item
    most = min(tile.chunk // layout.columns, IMAGES_BYTES // image)
    if layout.planes_are_there or 2 * most * layout.columns < tile.chunk or g.images * g.groups < work_items(runtime):
        return 0
    # As many parts as keep all cores busy to the end.
    return ceil_div(g.images, round_up(ceil_div(g.images, most), runtime.features.compute_units))


def _in_caches(runtime: Runtime, c: Convolution, layout: _Layout, tile: WeightTile) -> _Multiplication:
    """Work-items lay out the images that they multiply."""
    g, out = c.geometry, c.out
    real = real_type(out.dtype)
    together = _images_together(runtime, g, layout, tile, itemsize(real))
    splits = min(ceil_div(g.images, together), ceil_div(work_items(runtime), g.groups))
    channel = 0 if layout.slopes_are_there else layout.slopes.channel
    slopes, planes = (
        splits * g.groups * together * n for n in (g.filters * channel, g.channels * layout.planes.channel)
    )
    multiply = runtime.launch(
        "conv2d_weight_grad", "conv/cpu_weight_grad",
        {**_definitions(runtime, c, tile), "LAID_OUT": False, "SLOPES_THERE": layout.slopes_are_there},
        [
            Tensor(0), Workspace(3), table(layout.slopes), Tensor(1), Workspace(4), table(layout.planes),
            *_sums(splits, out, real), *_shape(g, layout), *uints(together, splits),
            *longs(*c.first.strides, *c.second.strides),
        ],
        (splits, g.groups), (1, 1),
    )  # fmt: skip
    return _Multiplication((multiply,), (slopes * itemsize(real) or 1, planes * itemsize(real)), splits)


def _from_memory(runtime: Runtime, c: Convolution, layout: _Layout, tile: WeightTile) -> _Multiplication:
    """The images are laid out first."""
    g, out = c.geometry, c.out
    real = real_type(out.dtype)
    slopes = images_as(runtime, c.first, 0, 3, layout.slopes, real, packed=not layout.slopes_are_there)
    planes = images_as(runtime, c.second, 1, 4, layout.planes, real, packed=not layout.planes_are_there)
    block = tile.rows * max(1, tile.reuse // (tile.rows * len(layout.phase.taps)))
    tiles = ceil_div(g.filters, block)
    chunks = ceil_div(layout.columns, tile.chunk)
    chunk = round_up(ceil_div(layout.columns, chunks), lanes(runtime, real))
    together = max(1, min(g.images, tile.chunk // chunk))
    splits = min(chunks * ceil_div(g.images, together), ceil_div(work_items(runtime), tiles * g.groups))
    multiply = runtime.launch(
        "conv2d_weight_grad", "conv/cpu_weight_grad", _definitions(runtime, c, tile),
        [
            *slopes.parameters, *planes.parameters, *_sums(splits, out, real), *_shape(g, layout),
            *uints(together, splits, chunk, block), *slopes.strides, *planes.strides,
        ],
        (tiles, splits, g.groups), (1, 1, 1),
    )  # fmt: skip
    return _Multiplication((*slopes.steps, *planes.steps, multiply), (slopes.nbytes or 1, planes.nbytes or 1), splits)


def _definitions(runtime: Runtime, c: Convolution, tile: WeightTile) -> Definitions:
    real = real_type(c.out.dtype)
    return {
        "DTYPE": c.second.dtype.name, "REAL": real, "WIDTH": lanes(runtime, real), "ROWS": tile.rows,
        "COLUMNS": tile.pairs,
    }  # fmt: skip


def _shape(g: Geometry, layout: _Layout) -> list[Parameter]:
    taps = len(layout.phase.taps)
    return [Table(layout.phase.places), *uints(taps, g.channels, g.filters, g.images, g.groups, layout.columns)]


def _sums(splits: int, out: Spec, real: str) -> tuple[Parameter, ...]:
    """Where the sums go."""
    return (Tensor(2),) if _is_straight(splits, out, real) else (Workspace(5), Constant(0, "ulong"))


def _is_straight(splits: int, out: Spec, real: str) -> bool:
    """Whether the sums are the result."""
    return splits == 1 and is_real(out, real)
