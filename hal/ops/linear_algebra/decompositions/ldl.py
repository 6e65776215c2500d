"""Symmetric indefinite factors `A = L D L^T` with the pivots of Bunch and Kaufman, and solutions from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import broadcast_shapes
from polyhal.hal.ops.declare import Autocast, OpFunction, Output, Sample, Specs, declare, first_tensor, tensor_at
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    require_matrices,
    result_dtype,
    singular,
    well_conditioned,
)
from polyhal.hal.ops.tensor_like import Array

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_ALPHA = (1 + math.sqrt(17)) / 8
"""A diagonal element of this share of the largest below it is pivot enough (Bunch and Kaufman 1977)."""


def _largest(x: np.ndarray) -> tuple[int, float]:
    position = int(np.argmax(np.abs(x)))
    return position, float(abs(x[position]))


def _pivot(a: np.ndarray, k: int) -> tuple[int, int]:
    """The row to exchange, and whether the pivot has 1 or 2 rows."""
    n, own = len(a), float(abs(a[k, k]))
    if k == n - 1:
        return k, 1
    offset, below = _largest(a[k + 1 :, k])
    if own >= _ALPHA * below or not below:
        return k, 1
    row = k + 1 + offset
    beside = _largest(a[row, k:row])[1]
    if row < n - 1:
        beside = max(beside, _largest(a[row + 1 :, row])[1])
    if own >= _ALPHA * below * (below / beside):
        return k, 1
    return row, 1 if abs(a[row, row]) >= _ALPHA * beside else 2


def _exchange(a: np.ndarray, first: int, other: int, start: int) -> None:
    """Exchange two rows and columns of the lower triangle of a symmetric matrix, with first column `start`."""
    a[other + 1 :, [first, other]] = a[other + 1 :, [other, first]]
    between = a[first + 1 : other, first].copy()
    a[first + 1 : other, first] = a[other, first + 1 : other]
    a[other, first + 1 : other] = between
    a[[first, other], [first, other]] = a[[other, first], [other, first]]
    if start < first:
        a[[first, other], start] = a[[other, first], start]


def _factored(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """LAPACK's sytf2 on the lower triangle of one matrix."""
    a, n, k, info = np.tril(a), len(a), 0, 0
    pivots = np.zeros(n, np.int32)
    while k < n:
        row, step = _pivot(a, k)
        last = k + step - 1
        if row != last:
            _exchange(a, last, row, k)
        rest = slice(k + step, n)
        if step == 1:
            pivots[k] = row + 1
            if a[k, k] == 0:
                info = info or k + 1
            else:
                column = a[rest, k] / a[k, k]
                a[rest, rest] -= np.tril(np.outer(column, a[rest, k]))
                a[rest, k] = column
        else:
            pivots[k : k + 2] = -(row + 1)
            block = np.array([[a[k, k], a[last, k]], [a[last, k], a[last, last]]])
            columns = a[rest, k : k + 2]
            factors = np.linalg.solve(block, columns.T).T.astype(a.dtype)
            a[rest, rest] -= np.tril(factors @ columns.T)
            a[rest, k : k + 2] = factors
        k += step
    return a, pivots, info


def _ldl_factors(a: Array, *, check: bool = False) -> Any:
    """L and D in one lower triangle, pivots as LAPACK's sytrf returns them, and per matrix the first zero pivot or 0.

    A negative pivot, stored twice, marks a block of two rows. Raises LinAlgError if `check` and a matrix is singular.
    """
    a = np.asarray(a)
    n, batch = a.shape[-1], a.shape[:-2]
    out, pivots, info = np.zeros_like(a), np.zeros((*batch, n), np.int32), np.zeros(batch, np.int32)
    for index in np.ndindex(*batch):
        out[index], pivots[index], info[index] = _factored(a[index])
    if check and info.any():
        raise singular("ldl_factor", info, "is singular: its pivot number {} is 0")
    return out, pivots, info


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("ldl_factor", spec, square=True)
    return [(spec.dtype, spec.shape), (dtypes.int32, spec.shape[:-1]), (dtypes.int32, spec.shape[:-2])]


def _symmetric(rng: np.random.Generator, *shape: int) -> Any:
    """Symmetric matrices with small diagonals, so that some pivots are blocks."""
    x = well_conditioned(rng, *shape)
    return (x + np.swapaxes(x, -2, -1)) * (1 - 0.9 * np.eye(shape[-1]))


ldl_factors: OpFunction = declare(
    _ldl_factors,
    name="ldl_factors",
    family="decomposition",
    infer=_infer,
    outputs=("out", "pivots", "info"),
    lowering=LAPACK,
    samples=lambda rng: [Sample((_symmetric(rng, *s),)) for s in [(2, 4, 4), (2, 3, 3), (0, 0)]],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _substituted(a: np.ndarray, pivots: np.ndarray, b: np.ndarray) -> np.ndarray:
    """LAPACK's sytrs for one matrix."""
    x, n, k = b.copy(), len(a), 0
    blocks: list[tuple[int, int]] = []
    while k < n:
        step = 1 if pivots[k] > 0 else 2
        last, row = k + step - 1, abs(int(pivots[k])) - 1
        x[[last, row]] = x[[row, last]] if row != last else x[[last, row]]
        x[k + step :] -= a[k + step :, k : k + step] @ x[k : k + step]
        block = np.tril(a[k : k + step, k : k + step])
        x[k : k + step] = np.linalg.solve(block + np.tril(block, -1).T, x[k : k + step])
        blocks.append((k, step))
        k += step
    for k, step in reversed(blocks):
        x[k : k + step] -= a[k + step :, k : k + step].T @ x[k + step :]
        last, row = k + step - 1, abs(int(pivots[k])) - 1
        if row != last:
            x[[last, row]] = x[[row, last]]
    return x


def _ldl_solution(a: Array, pivots: Array, b: Array) -> Any:
    """The solution X of `A @ X = b` from the factors of a symmetric `A`."""
    a, pivots, b = np.asarray(a), np.asarray(pivots), np.asarray(b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, pivots = np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(pivots, (*batch, a.shape[-1]))
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    out = np.zeros(b.shape, b.dtype)
    for index in np.ndindex(*batch):
        out[index] = _substituted(a[index], pivots[index], b[index])
    return out


def _infer_solution(specs: Specs, params: Params) -> list[Output]:
    a, pivots, b = (tensor_at(specs, i) for i in range(3))
    require_matrices("ldl_solve", a, square=True)
    require_matrices("ldl_solve", b)
    if a.shape[-1] != b.shape[-2] or pivots.shape != a.shape[:-1] or not pivots.dtype.is_integral:
        raise ValueError(
            f"{a}, pivots {pivots} and right side {b}; expected (..., n, n), integers (..., n), (..., n, k)"
        )
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return [(result_dtype("ldl_solve", a, b), (*batch, *b.shape[-2:]))]


def _solution_samples(rng: np.random.Generator) -> list[Sample]:
    samples = []
    for left, right in [((2, 4, 4), (4, 2)), ((2, 3, 3), (3, 1)), ((0, 0), (0, 2))]:
        factors, pivots, _ = _ldl_factors(_symmetric(rng, *left))
        samples.append(Sample((factors, pivots, rng.uniform(-1, 1, right)), differentiable=False))
    return samples


ldl_solution: OpFunction = declare(
    _ldl_solution,
    name="ldl_solution",
    family="decomposition",
    infer=_infer_solution,
    lowering=LAPACK,
    samples=_solution_samples,
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
