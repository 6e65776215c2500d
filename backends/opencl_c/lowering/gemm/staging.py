"""Copies of operands to local memory in kernels with `lib/staging.h`: axis and bytes per copy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.hal import dtypes

_COPY_BYTES = (16, 8, 4)
"""Sizes of asynchronous copies, fastest first."""
_QUAD_BYTES = 16
"""Bytes of four elements that are loaded at a time."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Copies of one operand: K-major if the terms of a row of a, or of a column of b, are contiguous, else MN-major."""

    k_major: bool
    nbytes: int
    """Bytes per copy."""
    ragged: bool = False
    """True if a line ends within a copy."""


def choose(
    matrix: Matrix, strides: tuple[int, int], lengths: tuple[int, int], itemsize: int, *, ragged: bool = False
) -> Staging:
    """Choose the largest copies that an operand's layout permits.

    `strides` and `lengths` belong to the axes MN (rows of a or columns of b) and K (terms). Lines must end with a whole
    copy unless they may be `ragged`.
    """
    k_major = strides[1] == 1 or strides[0] != 1
    if 1 in strides and matrix.aligned:
        line_strides = (strides[not k_major], *matrix.batch)
        for nbytes in _COPY_BYTES:
            if nbytes < itemsize or any(stride * itemsize % nbytes for stride in line_strides):
                continue
            whole = lengths[k_major] * itemsize % nbytes == 0
            if whole or ragged:
                return Staging(k_major, nbytes, not whole)
    return Staging(k_major, itemsize)


def definitions(p: Product, *, padded: bool = False, ragged: bool = False) -> dict[str, int | bool]:
    """Return the definitions of lib/staging.h for both operands; `padded` lines consist of whole 16-byte copies."""
    size = p.dtype.itemsize
    a = choose(p.left, (p.left.row, p.left.column), (p.m, p.k), size, ragged=ragged)
    b = choose(p.right, (p.right.column, p.right.row), (p.n, p.k), size, ragged=ragged)
    if padded:
        a, b = (replace(operand, nbytes=_COPY_BYTES[0], ragged=False) for operand in (a, b))
    return {
        "A_K_MAJOR": a.k_major,
        "B_K_MAJOR": b.k_major,
        "A_BYTES": a.nbytes,
        "B_BYTES": b.nbytes,
        "RAGGED": a.ragged or b.ragged,
    }


def quads(p: Product, rows: int, columns: int, terms: int, stagers: int) -> dict[str, bool]:
    """Return the definitions of gemm/k_tile.h: contiguous axes, and whether work-items load four elements at a time."""
    layouts = definitions(p)
    defined = {}
    for side, extent in (("A", rows), ("B", columns)):
        whole = p.dtype is dtypes.float32 and layouts[f"{side}_BYTES"] == _QUAD_BYTES
        defined[f"{side}_K_MAJOR"] = bool(layouts[f"{side}_K_MAJOR"])
        defined[f"{side}_QUADS"] = whole and extent * terms >= 4 * stagers
    return defined
