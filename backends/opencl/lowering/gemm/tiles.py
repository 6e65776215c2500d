"""Matrix products on any GPU: tiles staged in local memory; where there are too few, groups share out their terms."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl.lowering.gemm import split_k, staging
from polyhal.backends.opencl.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl.lowering.support.epilogue import epilogue
from polyhal.backends.opencl.ptx import Target
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.kernels.tuning import Family, size_class
from polyhal.hal.protocol import Launch

GROUP = 256
"""Work-items per tile."""
_SHARE = 256
_PADDING = 4
_GROUPS_PER_UNIT = 4
"""Groups that share out the terms of too few tiles, per compute unit."""
_RESIDENT = Target(groups=2)
"""Two groups of the largest tile hide each other's waits. The compiler would take a few registers more, and fit only one."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A work-item's blocks of 4 x 4 results, terms per strip, and strips that are in local memory at once."""

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
        """How many of them cover the results."""
        return ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns) * p.count

    def local_memory(self, itemsize: int) -> int:
        """Bytes."""
        return self.stages * self.depth * (self.rows + self.columns + 2 * _PADDING) * itemsize


TILES = Family[Tile](
    "matmul_tiles",
    {"quad_rows": (1, 2), "quad_columns": (1, 2), "depth": (8, 16, 32), "stages": (2, 3)},
    lambda features, tile: tile.local_memory(4) <= features.static_local_memory and (tile.stages == 2 or features.tensor_cores),
)  # fmt: skip


def choose(runtime: Runtime, p: Product, *, asynchronous: bool) -> Tile:
    """The largest tile that keeps all compute units busy, with the terms of tiles shared out where that helps."""
    units = runtime.features.compute_units
    large, small = (Tile(2, 2, 32, 2), Tile(1, 1, 16, 3)) if asynchronous else (Tile(2, 2, 8, 2), Tile(1, 1, 16, 2))
    if _RESIDENT.groups * large.local_memory(p.sum_dtype.itemsize) > runtime.features.static_local_memory:
        large = Tile(2, 2, 8, large.stages)
    tiles = large.count(p)
    few = tiles < units and tiles * (p.k // _SHARE) < units
    if p.sum_dtype.itemsize > 4:
        return small
    return runtime.tuning.choose(TILES, size_class(p.m, p.n, p.k), small if few else large)


def build(runtime: Runtime, p: Product) -> Launch:
    """Raises KernelBuildError."""
    asynchronous = runtime.features.tensor_cores and p.dtype is dtypes.float32 and p.out_dtype is dtypes.float32
    return multiply(runtime, p, choose(runtime, p, asynchronous=asynchronous), asynchronous=asynchronous)


def multiply(runtime: Runtime, p: Product, tile: Tile, *, asynchronous: bool) -> Launch:
    """The product in such tiles. Raises KernelBuildError."""
    units = runtime.features.compute_units
    tiles = tile.count(p)
    groups = _GROUPS_PER_UNIT * units if tiles < 2 * units else 0
    split = split_k.choose(groups, tiles, p.k, tile.depth)
    shared = split.splits > 1
    finishing, finishing_args = epilogue(replace(p, bias=None, epilogue=None) if shared else p)
    staged = staging.definitions(p)
    # A line of terms is turned as it is copied, so element by element.
    for side in "AB":
        if staged[f"{side}_ALONG"]:
            staged[f"{side}_BYTES"] = p.dtype.itemsize
    defined = definitions(
        p, finishing, staged, WIDTH=4, QUAD_ROWS=tile.quad_rows, QUAD_COLUMNS=tile.quad_columns, DEPTH=tile.depth,
        STAGES=tile.stages, ASYNC=asynchronous, TENSOR_CORES=runtime.features.tensor_cores, SPLIT=shared,
        OUT_QUADS=p.n % 4 == 0 and (shared or (p.out.aligned and p.out_dtype is p.sum_dtype)),
    )  # fmt: skip
    if not asynchronous:
        del defined["A_BYTES"], defined["B_BYTES"]  # which would only make variants of the same kernel
    target: Arguments = {"partial": Workspace(p.workspace)} if shared else {"out": Tensor(p.out.place)}
    large = tile.quad_rows * tile.quad_columns >= 4
    nvidia = runtime.features.compute_capability > 0
    launch = runtime.launch(
        "matmul_tiles", "gemm/tiles", defined,
        {**geometry(p), **finishing_args, **target, "terms": split.terms},
        (tiles // p.count * GROUP, split.splits, p.count), (GROUP, 1, 1), target=_RESIDENT if nvidia and large else None,
    )  # fmt: skip
    if not shared:
        return launch
    reduce = split_k.reduce(runtime, p, split, p.workspace)
    return LaunchSequence("matmul", (launch, reduce), split_k.workspace(p, split))
