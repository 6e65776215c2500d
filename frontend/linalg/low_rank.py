"""Singular values of large matrices of low rank, from random projections (Halko, Martinsson, Tropp 2011)."""

from __future__ import annotations

from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops.linear_algebra.factors import qr
from polyhal.hal.ops.linear_algebra.results import LowRankResult
from polyhal.hal.ops.linear_algebra.spectra import svd
from polyhal.hal.ops.top_level import top_level
from polyhal.random import randn
from polyhal.tensor import Tensor


@top_level
def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> LowRankResult:
    """U (..., m, q), S (..., q) and V (..., n, q) of `A`, or of `A - M`: about its `q` largest singular values.

    `niter` iterations of the subspace sharpen the result. Raises ShapeError if `q` exceeds m or n.
    """
    x = A if M is None else A - M
    m, n = x.shape[-2:]
    if not 0 <= q <= min(m, n):
        raise ShapeError(message("svd_lowrank", f"q {q} for shape {x.shape}", expected=f"0 to {min(m, n)}"))
    if m < n:
        u, s, v = _tall(x.transpose(-2, -1), q, niter)
        return LowRankResult(v, s, u)
    return LowRankResult(*_tall(x, q, niter))


@top_level
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> LowRankResult:
    """The `q` largest principal components of rows: `svd_lowrank` of `A`, less its mean over rows if `center`.

    `q` is min(6, m, n) by default.
    """
    m, n = A.shape[-2:]
    return svd_lowrank(A - A.mean(-2, True) if center else A, min(6, m, n) if q is None else q, niter)


def _tall(x: Tensor, q: int, niter: int) -> tuple[Tensor, Tensor, Tensor]:
    turned = x.transpose(-2, -1)
    basis = qr(x @ randn((x.shape[-1], q), dtype=x.dtype, device=x.device)).Q
    for _ in range(niter):
        basis = qr(x @ qr(turned @ basis).Q).Q
    u, s, vh = svd(basis.transpose(-2, -1) @ x, full_matrices=False)
    return basis @ u, s, vh.transpose(-2, -1)
