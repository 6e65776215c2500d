"""Products of few rows of 16-bit floats with quantised weights on tensor cores, with epilogues, several matrices and norms.

A product of one row takes as long as its latencies, which loads of blocks hide before its inputs are complete. The division
was fitted to an H200.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import early
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.gemm import joined
from polyhal.backends.opencl_c.lowering.gemm.tile_configs import HALF_DTYPES
from polyhal.backends.opencl_c.lowering.quantized.operands import operands
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.protocol import Declined, Launch
from polyhal.hal.quantization.block_format import BlockFormat
from polyhal.hal.quantization.tiles import TILE

_MAX_ROWS = 64
"""Above, weights become floats first."""
_GROUP_ROWS = 16
_PIECE = 128
"""Maximum weights of a row that a warp loads at a time (PIECES in the kernel)."""
_WARP = 32
_MAX_WARPS = 32
_SEVERAL_ROWS = 4
"""Rows of x from which local memory is faster than the first-level cache."""
_STAGED_BYTES = 100 << 10
"""Maximum bytes of rows in local memory: a compute unit holds two groups."""
_MANY_ROWS = 8
"""Rows of x above which groups share their loads of x between tiles."""
_MANY_TILES = 8
"""Tiles per compute unit from which memory's bandwidth counts more than latency."""
_LONG = 64
"""Pieces of a row above which more warps than 16 load all of them at a time."""
_FEW_BITS = 5
"""Bits per weight up to which six pieces fit the registers of so many warps."""
_SUM_BYTES = 8 * 20 * 4
"""Local memory for the sums of a tile (SUM_TILE in the kernel)."""


@dataclass(frozen=True, slots=True)
class QuantizedFewRows:
    """Work of a group: `along * across` warps, which divide the pieces of a row, and tiles, or pairs of them."""

    along: int
    across: int
    unroll: int
    """Pieces of a warp in flight at a time."""


def _allowed(features: KernelFeatures, choice: QuantizedFewRows) -> bool:
    return choice.along * choice.across <= min(_MAX_WARPS, features.max_group_size // _WARP)


FAMILY = Family[QuantizedFewRows](
    "quantized_few_rows", {"along": (2, 4, 8, 16), "across": (1, 2, 4, 8), "unroll": (1, 2, 4, 8)}, _allowed
)


def build(runtime: Runtime, p: Product, form: BlockFormat) -> Launch | Declined:
    """Build the launch, or return the reason why the kernel does not compute this product. Raises KernelBuildError."""
    refused = _refused(runtime.features, p)
    if refused:
        return Declined(refused)
    kind = f"{size_class(p.m, p.n, p.k)} of {form.name}{' in pairs' if _pairs(p) else ''}"
    choice = runtime.tuning.choose(FAMILY, kind, default(runtime.features, p, form))
    if _local_memory(p, choice, staged=_normed(p)) > runtime.features.static_local_memory:
        return Declined("the rows of x do not fit local memory")
    return multiply(runtime, p, form, choice)


def default(features: KernelFeatures, p: Product, form: BlockFormat) -> QuantizedFewRows:
    """Return the division that was fastest on an H200."""
    tiles, large = ceil_div(p.n, TILE), form.block > _PIECE
    pieces, units = p.k // min(form.block, _PIECE), features.compute_units
    if large and tiles >= _MANY_TILES * units:
        choice = QuantizedFewRows(4, 4, 1)
    elif large:
        choice = QuantizedFewRows(16 if _pairs(p) or tiles <= units else 8, 1, 1)
    elif _pairs(p) and p.m > _MANY_ROWS:
        choice = QuantizedFewRows(8, min(4, ceil_div(tiles, units)), 1)
    elif p.m == 1 and tiles <= units and pieces > _LONG and form.bits <= _FEW_BITS and not _pairs(p):
        choice = QuantizedFewRows(ceil_div(pieces, 6), 1, 6)
    elif tiles <= (2 if p.m == 1 else 1) * units and not _pairs(p):
        choice = QuantizedFewRows(16, 1, 4)
    elif tiles < _MANY_TILES * units:
        choice = QuantizedFewRows(8, 1, 4)
    else:
        choice = QuantizedFewRows(4, 1, 8) if p.m == 1 else QuantizedFewRows(4, 4, 2)
    most = features.max_group_size // _WARP // choice.across
    along = max(1, min(choice.along, pieces, most))
    return replace(choice, along=along, unroll=min(choice.unroll, ceil_div(pieces, along)))


def multiply(runtime: Runtime, p: Product, form: BlockFormat, choice: QuantizedFewRows) -> Launch:
    """Build the launch with this division of the work. Raises KernelBuildError."""
    rows = _rows(p)
    definitions, args = operands(p, form)
    args |= {name: early(args[name]) for name in ("y", "y1", "y2") if name in args}
    items = _WARP * choice.along * choice.across
    return runtime.launch(
        "quantized/few_rows",
        {
            **definitions,
            "ROWS": rows,
            "ALONG": choice.along,
            "ACROSS": choice.across,
            "UNROLL": choice.unroll,
            "TENSOR_CORES": runtime.features.tensor_cores,
            **({"STAGED": 1, "ROW_TERMS": p.k} if _staged(runtime.features, p, choice) else {}),
        },
        args,
        (ceil_div(p.n, TILE * choice.across) * items, ceil_div(p.m, rows)),
        (items, 1),
    )


def _refused(features: KernelFeatures, p: Product) -> str:
    """Return the reason why the kernel does not compute this product; empty if it does."""
    if not features.tensor_cores:
        return "the device has no tensor cores"
    if p.dtype not in HALF_DTYPES or p.sum_class != "float":
        return f"x is {p.dtype.name}; the kernel multiplies 16-bit floats"
    if p.count != 1 or not 1 <= p.m <= _MAX_ROWS or not p.k or not p.n:
        return f"{p.count} products of {p.m} rows; the kernel computes one of up to {_MAX_ROWS}"
    if p.left.column != 1 or not p.left.aligned or (p.m > 1 and p.left.row % 8):
        return "the rows of x are not whole vectors"
    if p.joined is not None and len(p.joined.places) >= joined.MAX_MATRICES:
        return f"more than {joined.MAX_MATRICES} matrices"
    return ""


def _pairs(p: Product) -> bool:
    return p.joined is not None and p.joined.pairs


def _rows(p: Product) -> int:
    """Return the rows of a group."""
    return min(_GROUP_ROWS, 1 << (p.m - 1).bit_length())


def _normed(p: Product) -> bool:
    return p.joined is not None and p.joined.norm is not None


def _staged(features: KernelFeatures, p: Product, choice: QuantizedFewRows) -> bool:
    """Return whether rows of x go through local memory: normed ones do, and several that fit."""
    if _normed(p):
        return True
    several = p.m >= _SEVERAL_ROWS and _rows(p) * p.k * 2 <= _STAGED_BYTES
    return several and _local_memory(p, choice, staged=True) <= features.static_local_memory


def _local_memory(p: Product, choice: QuantizedFewRows, *, staged: bool) -> int:
    """Return the bytes of local memory of a group."""
    warps, rows = choice.along * choice.across, _rows(p)
    sums = warps * _SUM_BYTES * (2 if _pairs(p) else 1)
    return sums + (rows * (2 * p.k + 32) if staged else 0) + (4 * _WARP * warps + 32 * rows if _normed(p) else 0)
