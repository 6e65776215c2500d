"""The gradient of a convolution's weight on CPUs, from planes (see backends.common.planes)."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.convolutions import Convolution
from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.planes import of_input, of_slopes
from polyhal.backends.opencl.launch import Parameter, Table
from polyhal.backends.opencl.lowering.conv_layout import (
    Step,
    images_as,
    is_real,
    itemsize,
    lanes,
    registers,
    work_items,
)
from polyhal.backends.opencl.lowering.matmul_arguments import uints
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch
from polyhal.hal.tuning import Family, size_class


@dataclass(frozen=True, slots=True)
class WeightTile:
    """How conv_planes_weight_grad.cl works."""

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


def weight_grad(runtime: Runtime, c: Convolution) -> Launch:
    g, slope, x, out = c.geometry, c.first, c.second, c.out
    real = real_type(out.dtype)
    width = lanes(runtime, real)
    input_planes, phase = of_input(g, width)
    slope_planes = of_slopes(g, input_planes.pitch, width)
    columns = round_up((g.result[0] - 1) * input_planes.pitch + g.result[1], width)
    plain = is_real(x, real) and columns == (g.result[0] - 1) * input_planes.pitch + g.result[1]
    slopes = images_as(runtime, slope, 0, 3, slope_planes, real, packed=not (plain and slope_planes.are(slope)))
    planes = images_as(runtime, x, 1, 4, input_planes, real, packed=not (plain and input_planes.are(x)))
    tile = weight_tile(runtime, real, g.filters, g.taps)
    block = tile.rows * max(1, tile.reuse // (tile.rows * len(phase.taps)))
    tiles = ceil_div(g.filters, block)
    chunks = ceil_div(columns, tile.chunk)
    chunk = round_up(ceil_div(columns, chunks), width)
    together = max(1, min(g.images, tile.chunk // chunk))
    splits = min(chunks * ceil_div(g.images, together), ceil_div(work_items(runtime), tiles * g.groups))
    straight = splits == 1 and is_real(out, real)
    sums: tuple[Parameter, ...] = (Tensor(2),) if straight else (Workspace(5), Constant(0, "ulong"))
    multiply = runtime.launch(
        "conv2d_weight_grad", "conv_planes_weight_grad",
        {"REAL": real, "WIDTH": width, "ROWS": tile.rows, "COLUMNS": tile.pairs},
        [
            *slopes.parameters, *planes.parameters, *sums, Table(phase.places),
            *uints(len(phase.taps), g.images, g.groups, g.channels, g.filters, columns, chunk, together, block, splits),
            *slopes.strides, *planes.strides,
        ],
        (tiles, splits, g.groups), (1, 1, 1),
    )  # fmt: skip
    steps: list[Step] = [*slopes.steps, *planes.steps, multiply]
    workspace = [slopes.nbytes or 1, planes.nbytes or 1]
    if not straight:
        steps.append(
            runtime.launch(
                "matmul_sum", "matmul_sum",
                {"OUT_DTYPE": out.dtype.name, "DTYPE": out.dtype.name, "REAL": real, "BIAS": False},
                [Workspace(5), Tensor(2), Constant(out.size, "ulong"), *uints(g.taps, splits)],
                (out.size,), (runtime.features.group_size,),
            )
        )  # fmt: skip
        workspace.append(splits * out.size * itemsize(real))
    return LaunchSequence("conv2d_weight_grad", steps, tuple(workspace))
