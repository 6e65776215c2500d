"""Sliced-K: the work-items of a group divide a small tile's terms; for products too small for large tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c import occupancy
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.gemm import staging
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.occupancy import Usage
from polyhal.backends.opencl_c.ptx import Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Launch

_GROUP = 256
_MAX_MULTIPLY_ADDS = 1 << 26
_MAX_TERMS = 2048
"""Maximum terms; above, split-K is faster despite its second launch."""
_TILES_PER_UNIT = 4
_PADDING = 4
"""Elements of padding per line in local memory, against bank conflicts."""
_SUMS, _OPERANDS, _OTHER_REGISTERS = 16, 8, 13
"""Registers of a work-item for sums, operands and the rest; an element in flight takes 3, with its address."""
_MIN_CLUSTER_TERMS = 128
"""Minimum terms of a group of a cluster."""
_MAX_CLUSTER = 8
"""Maximum groups of a cluster that every device with clusters has."""


@dataclass(frozen=True, slots=True)
class SlicedTile:
    """An output tile of 16, 32 or 64 rows and columns."""

    rows: int
    columns: int
    terms: int = 64
    """Terms of a k-tile."""
    quad_rows: int = 1
    """Blocks of 4 x 4 results of a work-item, one below the other."""
    cluster: int = 1
    """Groups that divide the terms; more than 1 only for devices with `KernelFeatures.clusters`."""

    @property
    def usage(self) -> Usage:
        """Predicted resources of a group, without complete unrolling of the loop over terms."""
        loads = (self.rows + self.columns) * self.terms // _GROUP
        registers = self.quad_rows * (_SUMS + _OPERANDS // 2) + _OPERANDS // 2 + 3 * loads + _OTHER_REGISTERS
        return Usage(registers, _GROUP, self.local_memory)

    @property
    def local_memory(self) -> int:
        """Bytes of local memory of a group: of a k-tile, and then of the sums of all slices."""
        return 4 * max(self.terms * (self.rows + self.columns + 2 * _PADDING), _GROUP * _SUMS * self.quad_rows)

    def count(self, p: Product) -> int:
        """Return the number of tiles that cover the results."""
        return ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns) * p.count


_SMALLEST, _SMALL = SlicedTile(16, 16), SlicedTile(16, 32)
_MEDIUM, _WIDE, _LARGE = (
    SlicedTile(r, c, terms, quad_rows=2) for r, c, terms in ((32, 32, 64), (32, 64, 64), (64, 64, 32))
)
"""Tiles for an H200. One group of the larger ones occupies a compute unit."""
_LOCAL_MEMORY = SlicedTile(32, 32).local_memory
"""Bytes of local memory of the tiles for any device."""


def suits(runtime: Runtime, p: Product) -> bool:
    """Return whether a product is small enough; narrow products may have any number of tiles."""
    features = runtime.features
    if p.sum_dtype.itemsize > 4 or features.max_group_size < _GROUP or features.static_local_memory < _LOCAL_MEMORY:
        return False
    if p.k > _MAX_TERMS or not features.local_memory_is_real:
        return False
    if _is_narrow(p):
        return True
    # Tiles with asynchronous copies are faster for many results, unless row sums would need another launch.
    asynchronous = features.tensor_cores and p.dtype is dtypes.float32 and p.row_sums is None
    most = _TILES_PER_UNIT // (2 if asynchronous else 1)
    small = p.count * p.m * p.n * p.k <= _MAX_MULTIPLY_ADDS
    return small and SlicedTile(32, 32).count(p) <= most * features.compute_units


def _is_narrow(p: Product) -> bool:
    return min(p.m, p.n) < 16


def build(runtime: Runtime, p: Product) -> Launch:
    """Build the launch with the tile that is fastest. Raises KernelBuildError."""
    return multiply(runtime, p, choose(runtime.features, p))


def choose(features: KernelFeatures, p: Product) -> SlicedTile:
    """Return the tile for a product."""
    if features.tensor_cores and min(p.m, p.n) > 16 and _LARGE.local_memory <= features.static_local_memory:
        return _for_nvidia(features, p)
    columns = 16 if p.n <= 16 else 32
    tile = SlicedTile(16 if p.m <= 16 else 32, columns)
    for smaller in (SlicedTile(16, columns), SlicedTile(16, 16)):
        if tile.count(p) < features.compute_units // 2:
            tile = smaller
    short = (replace(tile, terms=32), replace(tile, rows=16, terms=32))
    return occupancy.choose(features.architecture, features.static_local_memory, (tile, *short), lambda t: t.usage)


def _for_nvidia(features: KernelFeatures, p: Product) -> SlicedTile:
    """Return the tile that was fastest on an H200 for products of this many tiles and terms."""
    units, tiles = features.compute_units, _MEDIUM.count(p)
    if tiles > units:
        return _LARGE if tiles > 2 * units else _WIDE
    groups = min(_MAX_CLUSTER, units // tiles, p.k // _MIN_CLUSTER_TERMS)
    if groups < 2:
        return _MEDIUM
    if features.clusters and p.sum_class == "float":
        return replace(_MEDIUM, cluster=1 << (groups.bit_length() - 1))
    return _SMALLEST if _SMALLEST.count(p) <= 2 * units else _SMALL


def multiply(runtime: Runtime, p: Product, tile: SlicedTile) -> Launch:
    """Build the launch with tiles of this shape. Raises KernelBuildError."""
    macros, epilogue_args = epilogue(p)
    defined = definitions(
        p,
        macros,
        staging.quads(p, tile.rows, tile.columns, tile.terms, _GROUP),
        occupancy.definitions(runtime.features.architecture),
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        TERMS=tile.terms,
        QUAD_ROWS=tile.quad_rows,
        CLUSTER=tile.cluster,
        TENSOR_CORES=runtime.features.tensor_cores,
        BATCHED=p.count > 1,
        ROW_SUMS=p.row_sums is not None,
    )
    args: dict[str, Argument] = {**geometry(p), **epilogue_args, "out": Tensor(p.out.place)}
    if p.row_sums is not None:
        args["row_sums"] = Tensor(p.row_sums)
    items = (tile.count(p) // p.count * tile.cluster * _GROUP, p.count)
    target = Target(cluster=tile.cluster) if tile.cluster > 1 and runtime.features.tensor_cores else None
    return runtime.launch("gemm/sliced_k", defined, args, items, (_GROUP, 1), target=target)
