"""Distances and similarity of vectors."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.tensor import Tensor


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the scalar product along `dim`, divided by both 2-norms (each at least `eps`). Operands are broadcast."""
    return ops.cosine_similarity(x1, x2, dim, eps)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """p-norm along the last axis of `x1 - x2 + eps`, which are broadcast."""
    return ops.pairwise_distance(x1, x2, p, eps, keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """p-norms of the differences between all pairs of rows of `input` (N, M), in the order of the upper triangle."""
    return ops.pdist(input, p)
