"""Sliced-K: the work-items of a group divide a small tile's terms; for products too small for large tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c import occupancy
from polyhal.backends.opencl_c.lowering.gemm import staging
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl_c.lowering.support.epilogue import epilogue
from polyhal.backends.opencl_c.occupancy import Usage
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_GROUP = 256
_LOCAL_MEMORY = 4608 * 4
"""Bytes of the largest tile."""
_MAX_MULTIPLY_ADDS = 1 << 26
_MAX_TERMS = 2048
"""Maximum terms; above, split-K is faster despite its second launch."""
_TILES_PER_UNIT = 4
_PADDING = 4
"""Elements of padding per line in local memory, against bank conflicts."""
_SUMS, _OPERANDS, _OTHER_REGISTERS = 16, 8, 13
"""Registers of a work-item for sums, operands and the rest; an element in flight takes 3, with its address."""


@dataclass(frozen=True, slots=True)
class SlicedTile:
    """An output tile of 16 or 32 rows and columns."""

    rows: int
    columns: int
    terms: int = 64
    """Terms of a k-tile."""

    @property
    def usage(self) -> Usage:
        """Predicted resources of a group, without complete unrolling of the loop over terms."""
        loads = (self.rows + self.columns) * self.terms // _GROUP
        staged = self.terms * (self.rows + self.columns + 2 * _PADDING)
        return Usage(_SUMS + _OPERANDS + 3 * loads + _OTHER_REGISTERS, _GROUP, 4 * max(staged, _GROUP * _SUMS))

    def count(self, p: Product) -> int:
        """Return the number of tiles that cover the results."""
        return ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns) * p.count


def suits(runtime: Runtime, p: Product) -> bool:
    """Return whether a product is small enough; narrow products may have any number of tiles."""
    features = runtime.features
    if p.sum_dtype.itemsize > 4 or features.max_group_size < _GROUP or features.static_local_memory < _LOCAL_MEMORY:
        return False
    if p.k > _MAX_TERMS or not features.local_memory_is_real:
        return False
    if min(p.m, p.n) < 16:
        return True
    small = p.count * p.m * p.n * p.k <= _MAX_MULTIPLY_ADDS
    return small and SlicedTile(32, 32).count(p) <= _TILES_PER_UNIT * features.compute_units


def build(runtime: Runtime, p: Product) -> Launch:
    """Build the launch with the largest tiles that occupy half of the compute units, if any do. Raises KernelBuildError."""
    columns = 16 if p.n <= 16 else 32
    tile = SlicedTile(16 if p.m <= 16 else 32, columns)
    for smaller in (SlicedTile(16, columns), SlicedTile(16, 16)):
        if tile.count(p) < runtime.features.compute_units // 2:
            tile = smaller
    features = runtime.features
    short = (replace(tile, terms=32), replace(tile, rows=16, terms=32))
    tile = occupancy.choose(features.architecture, features.static_local_memory, (tile, *short), lambda t: t.usage)
    return multiply(runtime, p, tile)


def multiply(runtime: Runtime, p: Product, tile: SlicedTile) -> Launch:
    """Build the launch with tiles of this shape. Raises KernelBuildError."""
    macros, epilogue_args = epilogue(p)
    layouts = staging.definitions(p)
    layouts = {name: layouts[name] for name in ("A_K_MAJOR", "B_K_MAJOR")}
    defined = definitions(
        p,
        macros,
        layouts,
        occupancy.definitions(runtime.features.architecture),
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        TERMS=tile.terms,
        BATCHED=p.count > 1,
        ROW_SUMS=p.row_sums is not None,
    )
    args: dict[str, Argument] = {**geometry(p), **epilogue_args, "out": Tensor(p.out.place)}
    if p.row_sums is not None:
        args["row_sums"] = Tensor(p.row_sums)
    items = (tile.count(p) // p.count * _GROUP, p.count)
    return runtime.launch("gemm/sliced_k", defined, args, items, (_GROUP, 1))
