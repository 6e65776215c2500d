"""Matrix products on GPUs without tensor cores: tiles staged in local memory, with split-K if they are too few."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c import occupancy
from polyhal.backends.opencl_c.lowering.gemm import split_k, staging
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.occupancy import Usage
from polyhal.backends.opencl_c.ptx import Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.layout import contiguous
from polyhal.hal.protocol import Launch

GROUP = 256
"""Work-items per tile."""
_MIN_SPLIT_TERMS = 256
"""Terms per group that are assumed worthwhile when small tiles are compared with large ones."""
_PADDING = 4
"""Elements of padding per line in local memory, against bank conflicts."""
_GROUPS_PER_UNIT = 4
"""Target of split-K in groups per compute unit."""
_TRANSPOSE_MIN_ROWS, _TRANSPOSE_MIN_SIZE = 2048, 1 << 20
"""Minimum rows of A and elements of B for which transposing B first is faster.

Asynchronous copies then move 16 bytes instead of 4. On an H200 that makes large products a tenth faster.
"""
_LOAD_REGISTERS, _OTHER_REGISTERS = 4, 13
"""Registers of an element in flight to local memory, and other registers except for operands and sums.

An element's address is included. Fitted to AMD's compiler.
"""
_OCCUPANCY = Target(groups=2)
"""Target of two resident groups of the largest tile, which hide latency; the compiler's default fits only one."""


@dataclass(frozen=True, slots=True)
class SimtTile:
    """An output tile: 4 x 4 blocks per work-item, terms per k-tile, and pipeline stages."""

    quad_rows: int
    quad_columns: int
    depth: int
    stages: int

    @property
    def rows(self) -> int:
        return 64 * self.quad_rows

    @property
    def columns(self) -> int:
        return 64 * self.quad_columns

    def count(self, p: Product) -> int:
        """Return the number of tiles that cover the results."""
        return ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns) * p.count

    def local_memory(self, itemsize: int) -> int:
        """Return the bytes of local memory that a group needs."""
        return self.stages * self.depth * (self.rows + self.columns + 2 * _PADDING) * itemsize

    @property
    def usage(self) -> Usage:
        """Predicted resources of a group in float32, without complete unrolling of the loop over terms."""
        sums, operands = 16 * self.quad_rows * self.quad_columns, 4 * (self.quad_rows + self.quad_columns)
        loads = (self.rows + self.columns) * self.depth // GROUP
        registers = sums + operands + _LOAD_REGISTERS * loads + _OTHER_REGISTERS
        return Usage(registers, GROUP, self.local_memory(4))


TILES = Family[SimtTile](
    "matmul_tiles",
    {"quad_rows": (1, 2, 4), "quad_columns": (1, 2, 4), "depth": (8, 16, 32), "stages": (2, 3)},
    lambda features, tile: (
        tile.quad_rows * tile.quad_columns <= 4
        and tile.local_memory(4) <= features.static_local_memory
        and (tile.stages == 2 or features.tensor_cores)
        and (features.architecture is None or tile.usage.registers <= features.architecture.most_registers)
    ),
)


def choose(runtime: Runtime, p: Product, *, asynchronous: bool) -> SimtTile:
    """Choose the largest tile that occupies all compute units, with split-K if useful, and leaves enough waves."""
    units = runtime.features.compute_units
    large, small = SimtTile(2, 2, 8, 2), SimtTile(1, 1, 16, 2)
    if asynchronous:
        large, small = SimtTile(2, 2, 32, 2), SimtTile(1, 1, 16, 3)
    if _OCCUPANCY.groups * large.local_memory(p.sum_dtype.itemsize) > runtime.features.static_local_memory:
        large = SimtTile(2, 2, 8, large.stages)
    if min(p.m, p.n) <= small.columns:  # half of a square tile would be padding
        rows, columns = (4, 1) if p.n <= small.columns else (1, 4)
        large = SimtTile(rows, columns, min(large.depth, small.depth), small.stages)
    tiles = large.count(p)
    few = tiles < units and tiles * (p.k // _MIN_SPLIT_TERMS) < units
    if p.sum_dtype.itemsize > 4:
        return small
    tile = _with_enough_waves(runtime, small if few else large)
    return runtime.tuning.choose(TILES, size_class(p.m, p.n, p.k), tile)


def _with_enough_waves(runtime: Runtime, tile: SimtTile) -> SimtTile:
    """Return the tile, or the first smaller one with as many resident waves as the device needs."""
    features, rows, columns = runtime.features, tile.quad_rows, tile.quad_columns
    halves = (replace(tile, quad_rows=max(1, rows // 2)), replace(tile, quad_columns=max(1, columns // 2)))
    candidates = (tile, *halves, SimtTile(1, 1, 8, 2))
    return occupancy.choose(features.architecture, features.static_local_memory, candidates, lambda t: t.usage)


def build(runtime: Runtime, p: Product) -> Launch:
    """Build the launch with the tile that is fastest. Raises KernelBuildError."""
    asynchronous = runtime.features.tensor_cores and p.dtype is dtypes.float32 and p.out_dtype is dtypes.float32
    tile = choose(runtime, p, asynchronous=asynchronous)
    is_large = p.m >= _TRANSPOSE_MIN_ROWS and p.n * p.k >= _TRANSPOSE_MIN_SIZE
    if asynchronous and is_large and p.count == 1 and p.right.row == 1 and p.right.column > 1:
        return with_transposed_b(runtime, p, tile)
    return multiply(runtime, p, tile, asynchronous=asynchronous)


def with_transposed_b(runtime: Runtime, p: Product, tile: SimtTile) -> Launch:
    """Build the launches that transpose B to contiguous terms, and multiply."""
    place, at = p.right.place, p.workspace
    target = contiguous(p.dtype, (p.k, p.n))
    source = target._replace(strides=(p.right.row, p.right.column), aligned=p.right.aligned)
    turn = copy.to_workspace(runtime, source, place, target, at)
    right = Matrix(at, p.n, 1, (0, 0, 0), aligned=True)
    product = multiply(runtime, replace(p, right=right, workspace=at + 1), tile, asynchronous=True, right=Workspace(at))
    return LaunchSequence((turn, product), (target.nbytes, *product.workspace))


def multiply(
    runtime: Runtime, p: Product, tile: SimtTile, *, asynchronous: bool, right: Workspace | None = None
) -> Launch:
    """Build the launch with tiles of this shape; `right`, if present, replaces the memory of the right operand.

    Raises KernelBuildError.
    """
    units = runtime.features.compute_units
    tiles = tile.count(p)
    split = split_k.choose(_GROUPS_PER_UNIT * units if tiles < 2 * units else 0, tiles, p.k, tile.depth)
    partial = split.splits > 1
    macros, epilogue_args = epilogue(replace(p, bias=None, epilogue=None) if partial else p)
    layouts = staging.definitions(p)
    # K-major lines are transposed during the copy, so element by element.
    for side in "AB":
        if layouts[f"{side}_K_MAJOR"]:
            layouts[f"{side}_BYTES"] = p.dtype.itemsize
    defined = definitions(
        p,
        macros,
        layouts,
        occupancy.definitions(runtime.features.architecture),
        WIDTH=4,
        QUAD_ROWS=tile.quad_rows,
        QUAD_COLUMNS=tile.quad_columns,
        DEPTH=tile.depth,
        STAGES=tile.stages,
        ASYNC=asynchronous,
        TENSOR_CORES=runtime.features.tensor_cores,
        SPLIT_K=partial,
        OUT_QUADS=p.n % 4 == 0 and (partial or (p.out.aligned and p.out_dtype is p.sum_dtype)),
    )
    if not asynchronous:
        del defined["A_BYTES"], defined["B_BYTES"]  # unused: they would only multiply the programs
    target: Arguments = {"partial": Workspace(p.workspace)} if partial else {"out": Tensor(p.out.place)}
    large = tile.quad_rows * tile.quad_columns >= 4
    nvidia = runtime.features.compute_capability > 0
    launch = runtime.launch(
        "gemm/tiles",
        defined,
        {**geometry(p, b=right), **epilogue_args, **target, "split_terms": split.terms},
        (tiles // p.count * GROUP, split.splits, p.count),
        (GROUP, 1, 1),
        target=_OCCUPANCY if nvidia and large else None,
    )
    if not partial:
        return launch
    reduce = split_k.reduce(runtime, p, split, p.workspace)
    return LaunchSequence((launch, reduce), split_k.workspace(p, split))
