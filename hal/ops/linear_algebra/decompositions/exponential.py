"""The exponential of square matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Autocast, ErrorSample, OpFunction, Output, Sample, Specs, declare, first_tensor
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    require_matrices,
    t,
)
from polyhal.hal.ops.tensor_like import Array, TensorLike

_DEGREE = 13
_NORM = 5.37
"""Up to this 1-norm the Pade approximant of degree 13 is exact to double precision (Higham 2005)."""
_COEFFICIENTS = [
    math.factorial(2 * _DEGREE - j)
    * math.factorial(_DEGREE)
    / (math.factorial(2 * _DEGREE) * math.factorial(_DEGREE - j) * math.factorial(j))
    for j in range(_DEGREE + 1)
]


def _exponential(a: np.ndarray) -> np.ndarray:
    """The exponential of one matrix by scaling and squaring (Higham 2005)."""
    size = np.abs(a).sum(axis=0).max(initial=0.0)
    if not np.isfinite(size):
        return np.full_like(a, np.nan)
    halvings = max(0, math.ceil(math.log2(size / _NORM))) if size > _NORM else 0
    a = a / 2.0**halvings
    one, square = np.eye(len(a)), a @ a
    even, odd, power = np.zeros_like(a), np.zeros_like(a), one
    for j in range(0, _DEGREE, 2):
        even, odd = even + _COEFFICIENTS[j] * power, odd + _COEFFICIENTS[j + 1] * power
        power = power @ square
    odd = a @ odd
    out = np.linalg.solve(even - odd, even + odd)
    for _ in range(halvings):
        out = out @ out
    return out


def _matrix_exp(a: Array) -> Any:
    """The exponential of square matrices: the sum of `a^k / k!`."""
    a = np.asarray(a)
    flat = a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:]).astype(np.float64)
    return np.array([_exponential(x) for x in flat]).reshape(a.shape).astype(a.dtype)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("matrix_exp", spec, square=True)
    return [(spec.dtype, spec.shape)]


def _gradient(g: TensorLike, a: TensorLike) -> Any:
    """The upper right block of exp([[A^T, G], [0, A^T]]) (Mathias 1996)."""
    n = a.shape[-1]
    block = concat([concat([t(a), g], -1), concat([a * 0, t(a)], -1)], -2)
    return matrix_exponential(block)[..., :n, n:]


matrix_exponential: OpFunction = declare(
    _matrix_exp,
    name="matrix_exponential",
    family="decomposition",
    infer=_infer,
    lowering=LAPACK,
    gradient=_gradient,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (3, 3)),)),
        Sample((rng.uniform(-1, 1, (2, 2, 2)) * 3,)),
        Sample((np.zeros((0, 0)),)),
    ],
    errors=[ErrorSample((np.zeros((3, 2)),), {}, ValueError, r"expected \(..., n, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
