"""Products too small to employ a GPU with larger tiles: small ones, whose terms are shared out within a group."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl.lowering.gemm import staging
from polyhal.backends.opencl.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl.lowering.support.epilogue import epilogue
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch

_GROUP = 256
_LOCAL_MEMORY = 4608 * 4
"""Bytes, for the largest tile."""
_MOST_MULTIPLICATIONS = 1 << 26
_MOST_TERMS = 2048
"""Above, groups that share out a tile's terms in a second launch are faster."""
_TILES_PER_UNIT = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and columns of results, 16 or 32 each."""

    rows: int
    columns: int

    def count(self, p: Product) -> int:
        """How many of them cover the results."""
        return ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns) * p.count


def suits(runtime: Runtime, p: Product) -> bool:
    """Whether a product is small enough; narrow ones may have any number of tiles."""
    features = runtime.features
    if p.sum_dtype.itemsize > 4 or features.max_group_size < _GROUP or features.static_local_memory < _LOCAL_MEMORY:
        return False
    if p.k > _MOST_TERMS:
        return False
    if min(p.m, p.n) < 16:
        return True
    small = p.count * p.m * p.n * p.k <= _MOST_MULTIPLICATIONS
    return small and Tile(32, 32).count(p) <= _TILES_PER_UNIT * features.compute_units


def build(runtime: Runtime, p: Product) -> Launch:
    """The launch with tiles that employ about half of the compute units at least, if any do. Raises KernelBuildError."""
    columns = 16 if p.n <= 16 else 32
    found = Tile(16 if p.m <= 16 else 32, columns)
    for smaller in (Tile(16, columns), Tile(16, 16)):
        if found.count(p) < runtime.features.compute_units // 2:
            found = smaller
    return multiply(runtime, p, found)


def multiply(runtime: Runtime, p: Product, tile: Tile) -> Launch:
    """The product in such tiles. Raises KernelBuildError."""
    finishing, finishing_args = epilogue(p)
    staged = staging.definitions(p)
    sides = {name: staged[name] for name in ("A_ALONG", "B_ALONG")}
    batched, summed = p.count > 1, p.row_sums is not None
    defined = definitions(p, finishing, sides, ROWS=tile.rows, COLUMNS=tile.columns, BATCHED=batched, ROW_SUMS=summed)
    args: dict[str, Argument] = {**geometry(p), **finishing_args, "out": Tensor(p.out.place)}
    if p.row_sums is not None:
        args["row_sums"] = Tensor(p.row_sums)
    items = (tile.count(p) // p.count * _GROUP, p.count)
    return runtime.launch("matmul_slices", "gemm/sliced_k", defined, args, items, (_GROUP, 1))
