"""How kernels with `lib/staging.h` bring operands into local memory: along which axis, and in pieces of how many bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.problems.gemm import Matrix, Product

_PIECES = (16, 8, 4)
"""Bytes that one copy moves, best first."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Whether an operand's lines are its places with their terms side by side, or its terms with their places."""

    along_terms: bool
    nbytes: int
    """Of a piece of a line."""
    ragged: bool = False
    """A line ends within a piece."""


def walk(
    matrix: Matrix, strides: tuple[int, int], lengths: tuple[int, int], itemsize: int, *, ragged: bool = False
) -> Walk:
    """The largest pieces that an operand lies in; strides and lengths are those of its places and of its terms.

    Lines end with a whole piece, unless they may be `ragged`.
    """
    along = strides[1] == 1 or strides[0] != 1
    if 1 in strides and matrix.aligned:
        distances = (strides[not along], *matrix.batch)
        for nbytes in _PIECES:
            if nbytes < itemsize or any(d * itemsize % nbytes for d in distances):
                continue
            whole = lengths[along] * itemsize % nbytes == 0
            if whole or ragged:
                return Walk(along, nbytes, not whole)
    return Walk(along, itemsize)


def definitions(p: Product, *, padded: bool = False, ragged: bool = False) -> dict[str, int | bool]:
    """The definitions of kernels that read both operands of a product so; `padded` lines are made of whole pieces."""
    size = p.dtype.itemsize
    left = walk(p.left, (p.left.row, p.left.column), (p.m, p.k), size, ragged=ragged)
    right = walk(p.right, (p.right.column, p.right.row), (p.n, p.k), size, ragged=ragged)
    if padded:
        left, right = (replace(w, nbytes=_PIECES[0], ragged=False) for w in (left, right))
    return {
        "A_ALONG": left.along_terms, "B_ALONG": right.along_terms, "A_BYTES": left.nbytes, "B_BYTES": right.nbytes,
        "RAGGED": left.ragged or right.ragged,
    }  # fmt: skip
