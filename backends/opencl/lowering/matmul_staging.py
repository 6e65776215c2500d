"""How kernels with `staging.h` bring operands into local memory: along which axis, and in pieces of how many bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.products import Matrix, Product

_PIECES = (16, 8, 4)
"""Bytes that one copy moves, best first."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Whether an operand's lines are its places with their terms side by side, or its terms with their places."""

    along_terms: bool
    nbytes: int
    """Of a piece of a line."""


def walk(matrix: Matrix, strides: tuple[int, int], lengths: tuple[int, int], itemsize: int) -> Walk:
    """The largest pieces that an operand lies in; strides and lengths are those of its places and of its terms."""
    along = strides[1] == 1 or strides[0] != 1
    if 1 in strides and matrix.aligned:
        distances = (strides[not along], lengths[along], *matrix.batch)
        for nbytes in _PIECES:
            if nbytes >= itemsize and all(d * itemsize % nbytes == 0 for d in distances):
                return Walk(along, nbytes)
    return Walk(along, itemsize)


def definitions(p: Product, *, padded: bool = False) -> dict[str, int | bool]:
    """The definitions of kernels that read both operands of a product so; `padded` lines are made of whole pieces."""
    left = walk(p.left, (p.left.row, p.left.column), (p.m, p.k), p.dtype.itemsize)
    right = walk(p.right, (p.right.column, p.right.row), (p.n, p.k), p.dtype.itemsize)
    if padded:
        left, right = (replace(w, nbytes=_PIECES[0]) for w in (left, right))
    return {
        "A_ALONG": left.along_terms, "B_ALONG": right.along_terms, "A_BYTES": left.nbytes, "B_BYTES": right.nbytes
    }  # fmt: skip
