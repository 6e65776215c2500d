"""Batches of small products: a group computes several."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.gemm import staging
from polyhal.backends.opencl_c.lowering.gemm.arguments import definitions, geometry
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import HALF_DTYPES
from polyhal.backends.opencl_c.lowering.support.epilogue import aligned, epilogue
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.protocol import Launch

_PADDING = 4
"""Elements of padding per line in local memory, against bank conflicts."""
_LARGEST, _LARGEST_HALF = 64, 32
"""Maximum rows and columns; with 16-bit operands on tensor cores, their tiles are faster above."""


@dataclass(frozen=True, slots=True)
class SmallTile:
    """Products of a group: their largest size, blocks of 4 x 4 results per axis of a work-item, terms of a k-tile."""

    rows: int
    columns: int
    quads: int
    terms: int
    items: int
    """Work-items of the group."""

    @property
    def share(self) -> int:
        """Work-items per product."""
        return self.rows * self.columns // (4 * self.quads) ** 2

    @property
    def products(self) -> int:
        return self.items // self.share

    @property
    def local_memory(self) -> int:
        """Bytes of local memory for sums of four bytes."""
        return 4 * self.products * sum(self.terms * (n + _PADDING) + 16 for n in (self.rows, self.columns))


def _allowed(features: KernelFeatures, tile: SmallTile) -> bool:
    return (
        0 < tile.share <= tile.items <= features.max_group_size
        and tile.terms * min(tile.rows, tile.columns) % tile.share == 0
        and tile.local_memory <= features.static_local_memory
    )


TILES = Family[SmallTile](
    "matmul_small_matrices", {"quads": (1, 2), "terms": (8, 16, 32), "items": (64, 128, 256)}, _allowed
)


def suits(runtime: Runtime, p: Product) -> bool:
    """Return whether the products are small and enough to occupy the device."""
    features = runtime.features
    half = features.tensor_cores and p.dtype in HALF_DTYPES
    return (
        max(p.m, p.n) <= (_LARGEST_HALF if half else _LARGEST)
        and p.sum_dtype.itemsize == 4
        and p.row_sums is None
        and p.count >= features.compute_units
        and features.local_memory_is_real
        and _allowed(features, _tile(p))
    )


def _tile(p: Product) -> SmallTile:
    """Return the tile that was fastest on an H200."""
    rows, columns = (min(_LARGEST, max(16, 1 << (n - 1).bit_length())) for n in (p.m, p.n))
    quads = 2 if rows * columns >= 2048 else 1
    # Transposing the terms of a K-major operand into local memory costs less with more of them at a time.
    return SmallTile(rows, columns, quads, 16 if quads > 1 or p.right.row == 1 else 8, 64)


def build(runtime: Runtime, p: Product) -> Launch:
    """Build the launch. Raises KernelBuildError."""
    kind = f"{size_class(p.m, p.n, p.k)} of {p.dtype.name}"
    return multiply(runtime, p, runtime.tuning.choose(TILES, kind, _tile(p)))


def multiply(runtime: Runtime, p: Product, tile: SmallTile) -> Launch:
    """Build the launch with this tile. Raises KernelBuildError."""
    macros, epilogue_args = epilogue(p)
    defined = definitions(
        p,
        macros,
        staging.quads(p, tile.rows, tile.columns, tile.terms, tile.share),
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        QUADS=tile.quads,
        TERMS=tile.terms,
        ITEMS=tile.items,
        OUT_QUADS=aligned(p, 4),
    )
    args: dict[str, Argument] = {**geometry(p), **epilogue_args, "out": Tensor(p.out.place), "count": p.count}
    groups = ceil_div(p.count, tile.products)
    return runtime.launch("gemm/small_matrices", defined, args, (groups * tile.items,), (tile.items,))
