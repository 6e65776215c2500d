"""Matrices that factorizations may get wrong: graded, ill-conditioned, tiny, huge, or without structure."""

from __future__ import annotations

from typing import Any

import numpy as np

KINDS = ("normal", "graded", "ill-conditioned", "tiny", "huge")


def draw(rng: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Return matrices (..., m, n) of a kind."""
    a = rng.normal(size=shape)
    m, n = shape[-2:]
    if kind == "graded":
        a = a * np.logspace(0, -6, m)[:, None] * np.logspace(0, 6, n)
    elif kind == "ill-conditioned":
        u, _, vh = np.linalg.svd(a, full_matrices=False)
        a = (u * np.logspace(0, -5, min(m, n))) @ vh
    elif kind in ("tiny", "huge"):
        a = a * (1e-30 if kind == "tiny" else 1e30)
    return np.ascontiguousarray(a.astype(dtype))


def positive_definite(
    rng: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: Any = np.float32
) -> np.ndarray:
    """Return symmetric positive definite matrices of a kind."""
    n = shape[-1]
    q, _ = np.linalg.qr(rng.normal(size=shape))
    values = {"graded": np.ones(n), "ill-conditioned": np.logspace(0, -4, n), "tiny": np.full(n, 1e-30)}
    a = (q * values.get(kind, np.linspace(1, 3, n))) @ np.swapaxes(q, -2, -1)
    if kind == "graded":
        a = a * np.logspace(0, -6, n)[:, None] * np.logspace(0, -6, n)
    return np.ascontiguousarray(a.astype(dtype))


def strided(x: np.ndarray) -> np.ndarray:
    """Return equal matrices as a transposed view with gaps between rows."""
    wide = np.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2] + 3), x.dtype)
    view = np.swapaxes(wide[..., 1:-2], -2, -1)
    view[...] = x
    return view
