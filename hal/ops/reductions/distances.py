"""Distances between vectors: cdist, pdist, pairwise_distance, and cosine_similarity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.layout import broadcast_shapes
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.rows import take
from polyhal.hal.ops.layout.axes import transpose, unsqueeze
from polyhal.hal.ops.layout.views import broadcast_to
from polyhal.hal.ops.linear_algebra.matmul import matmul
from polyhal.hal.ops.pointwise.arithmetic import square
from polyhal.hal.ops.pointwise.exponential import sqrt
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.reductions.norms import vector_norm, vector_norm_gradient
from polyhal.hal.ops.reductions.sums import in_float, sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike

_MATMUL_ROWS = 25
"""Rows above which PyTorch computes Euclidean distances by a matrix product by default."""


def _np_distances(x: Array, y: Array, *, p: float = 2.0, by_product: bool = False) -> Any:
    """p-norms of the differences between rows of `x` (..., P, M) and of `y` (..., R, M): (..., P, R).

    `by_product` computes Euclidean distances from |x|^2 + |y|^2 - 2 x.y, which is faster, needs no memory for the
    differences, and is less accurate where distances are small compared to the vectors.
    """
    d = np.abs(np.asarray(x)[..., :, None, :] - np.asarray(y)[..., None, :, :])
    if p == 0:
        return np.sum(d != 0, -1).astype(d.dtype)
    if math.isinf(p):
        return np.max(d, -1, initial=0)
    return np.sum(d**p, -1) ** (1 / p)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, y = tensor_at(specs, 0), tensor_at(specs, 1)
    if x.ndim < 2 or y.ndim != x.ndim or x.shape[:-2] != y.shape[:-2] or x.shape[-1] != y.shape[-1]:
        raise ValueError(f"x {x.shape} and y {y.shape}; expected (..., P, M) and (..., R, M)")
    if x.dtype is not y.dtype or not x.dtype.is_floating_point:
        raise TypeError(f"got {x.dtype.name} and {y.dtype.name}; expected one floating-point dtype")
    if params["p"] < 0:
        raise ValueError(f"p is {params['p']}; expected 0 or more")
    return [(x.dtype, (*x.shape[:-1], y.shape[-2]))]


def _distances(x: TensorLike, y: TensorLike, *, p: float, by_product: bool) -> Any:
    if not x.shape[-1]:
        return sum_(unsqueeze(x, -2) - unsqueeze(y, -3), -1)
    if not by_product:
        return vector_norm(unsqueeze(x, -2) - unsqueeze(y, -3), -1, False, p)
    squares = unsqueeze(sum_(square(x), -1), -1) + unsqueeze(sum_(square(y), -1), -2)
    return sqrt(maximum(squares - matmul(x, transpose(y)) * 2.0, 0.0))


def _gradient(
    g: TensorLike, x: TensorLike, y: TensorLike, out: TensorLike, needs: tuple[bool, ...], *, p: float, by_product: bool
) -> Any:
    if p == 2:
        zero = equal(out, 0)
        weight = where(zero, 0, g / where(zero, 1, out))
        dx = x * unsqueeze(sum_(weight, -1), -1) - matmul(weight, y) if needs[0] else None
        dy = y * unsqueeze(sum_(weight, -2), -1) - matmul(transpose(weight), x) if needs[1] else None
        return dx, dy
    difference = unsqueeze(x, -2) - unsqueeze(y, -3)
    each = vector_norm_gradient(g, difference, out, difference.spec, axis=(difference.ndim - 1,), keepdims=False, ord=p)
    return sum_(each, -2) if needs[0] else None, -sum_(each, -3) if needs[1] else None


def _terms(specs: Specs, params: Params) -> int:
    return tensor_at(specs, 0).shape[-1]


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases = [
        ((3, 4), (5, 4), 2.0, False),
        ((2, 3, 4), (2, 2, 4), 1.0, False),
        ((3, 4), (2, 4), 3.0, False),
        ((3, 4), (2, 4), math.inf, False),
        ((4, 5), (3, 5), 2.0, True),
        ((3, 0), (2, 0), 2.0, False),
    ]
    return [
        Sample((rng.uniform(-2, 2, a), rng.uniform(-2, 2, b)), {"p": p, "by_product": by_product})
        for a, b, p, by_product in cases
    ]


distances: OpFunction = declare(
    _np_distances,
    name="distances",
    family="reduction",
    infer=_infer,
    lowering=Decompose(_distances),
    gradient=_gradient,
    samples=_samples,
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((2, 4))), {}, ValueError, r"expected \(\.\.\., P, M\)")],
    dtypes=dtypes.FLOATS,
    # The floor is for products, whose squares of up to 20 cancel to distances of about 1.
    tolerance=Tolerance(32.0, floor=4.0, terms=_terms),
    autocast=Autocast.FLOAT32,
    public=False,
)


@composite(method=False)
def cdist(
    x1: TensorLike, x2: TensorLike, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> Any:
    """p-norms of the differences between rows of `x1` (..., P, M) and of `x2` (..., R, M): (..., P, R).

    Leading axes are broadcast. `compute_mode` says whether Euclidean distances come from a matrix product:
    "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist" or, by default, for more than 25 rows. Raises ValueError for
    other modes.
    """
    modes = {
        "use_mm_for_euclid_dist_if_necessary": max(x1.shape[-2], x2.shape[-2]) > _MATMUL_ROWS,
        "use_mm_for_euclid_dist": True,
        "donot_use_mm_for_euclid_dist": False,
    }
    if compute_mode not in modes:
        raise ValueError(f"[cdist] compute_mode is {compute_mode!r}; expected one of {', '.join(modes)}")
    lead = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    x, y = (broadcast_to(v, (*lead, *v.shape[-2:])) for v in (x1, x2))
    return distances(x, y, float(p), p == 2 and modes[compute_mode])


@composite(method=False, aten="_pdist_forward")
def pdist(x: TensorLike, p: float = 2.0) -> Any:
    """p-norms of the differences between all pairs of rows of `x` (N, M), in the order of the upper triangle.

    Raises ValueError for other shapes, and a negative `p`.
    """
    if x.ndim != 2:
        raise ValueError(f"[pdist] x has shape {x.shape}; expected (N, M)")
    if p < 0:
        raise ValueError(f"[pdist] p is {p}; expected 0 or more")
    pairs = np.triu_indices(x.shape[0], 1)
    first, second = (dispatch.frontend.convert(v.astype(np.int64), x.device) for v in pairs)
    if not pairs[0].size or not x.shape[1]:
        return sum_(take(x, first, 0), 1)
    return vector_norm(take(x, first, 0) - take(x, second, 0), 1, False, float(p))


@composite(method=False)
def pairwise_distance(x1: TensorLike, x2: TensorLike, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """p-norm along the last axis of `x1 - x2 + eps`, which are broadcast."""
    return vector_norm(in_float(x1 - x2) + eps, -1, keepdim, float(p))


@composite(method=False)
def cosine_similarity(x1: TensorLike, x2: TensorLike, dim: int = 1, eps: float = 1e-8) -> Any:
    """The scalar product along `dim`, divided by both 2-norms (each at least `eps`). Operands are broadcast."""
    shape = broadcast_shapes(x1.shape, x2.shape)
    x, y = (broadcast_to(in_float(v), shape) for v in (x1, x2))
    x, y = (v / maximum(vector_norm(v, dim, True), eps) for v in (x, y))
    return sum_(x * y, dim)
