"""LU factors with partial pivoting, and the permutations that pivots represent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Autocast,
    DeviceProgram,
    ErrorSample,
    OnDevice,
    OnHost,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.triangle import tril, triu
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.decompositions.blocks import (
    PANEL,
    first_failure,
    half,
    is_small,
    minus_product,
    rows_in_order,
)
from polyhal.hal.ops.linear_algebra.decompositions.on_device import checked
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    require_matrices,
    singular,
    t,
    well_conditioned,
)
from polyhal.hal.ops.linear_algebra.decompositions.triangular import solve_triangular_left, substituted
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.protocol import Declined

_BLOCK = 32
"""Columns that are eliminated one by one; the rest of the matrix follows by one matrix product."""


SINGULAR = "is singular: its pivot number {} is 0"


def eliminated(a: np.ndarray, pivot: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both factors in one matrix, pivots numbered from 1, and per matrix the first zero pivot or 0 (LAPACK's getrf)."""
    m, n = a.shape[-2:]
    k = min(m, n)
    count = math.prod(a.shape[:-2])
    lu = np.array(a).reshape(count, m, n)
    pivots = np.broadcast_to(np.arange(1, k + 1, dtype=np.int32), (count, k)).copy()
    info = np.zeros(count, np.int32)
    every = np.arange(count)
    with np.errstate(all="ignore"):
        for start in range(0, k, _BLOCK):
            stop = min(start + _BLOCK, k)
            for j in range(start, stop):
                if pivot and count:
                    rows = j + np.argmax(np.nan_to_num(np.abs(lu[:, j:, j]), nan=np.inf), axis=-1)
                    pivots[:, j] = rows + 1
                    swapped = lu[every, rows].copy()
                    lu[every, rows] = lu[:, j]
                    lu[:, j] = swapped
                zero = lu[:, j, j] == 0
                info[zero & (info == 0)] = j + 1
                below = lu[:, j + 1 :, j]
                below /= np.where(zero, 1, lu[:, j, j])[:, None]
                lu[:, j + 1 :, j + 1 : stop] -= below[:, :, None] * lu[:, j, None, j + 1 : stop]
            if stop < n:
                corner = substituted(lu[:, start:stop, start:stop], lu[:, start:stop, stop:], False, True)
                lu[:, start:stop, stop:] = corner
                lu[:, stop:, stop:] -= lu[:, stop:, start:stop] @ corner
    batch = a.shape[:-2]
    return lu.reshape(a.shape), pivots.reshape(*batch, k), info.reshape(batch)


def _lu_factors(a: Array, *, pivot: bool = True, check: bool = False, start: int = 0) -> Any:
    """L and U of `a = P @ L @ U` in one matrix, pivots numbered from 1 as in LAPACK, and per matrix the first zero pivot or 0.

    `a` may be a part of a matrix: `start` is the number of rows before it, which numbers include. Raises LinAlgError if
    `check` and a pivot is 0.
    """
    out, pivots, info = eliminated(np.asarray(a), pivot)
    pivots += start
    info[...] = np.where(info == 0, 0, info + start)
    if check and info.any():
        raise singular("lu_factor", info, SINGULAR)
    return out, pivots, info


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("lu_factor", spec)
    batch = spec.shape[:-2]
    return [(spec.dtype, spec.shape), (dtypes.int32, (*batch, min(spec.shape[-2:]))), (dtypes.int32, batch)]


def _gradient(g: TensorLike, out: TensorLike, pivots: TensorLike, *, start: int) -> Any:
    """The square block M = tril(L^T dL - dU2 U2^T, -1) + triu(dU U^T - L2^T dL2) gives dA = P L^-T M U^-T.

    L2 are the rows and U2 the columns outside of the square block (de Hoog, Anderssen, Lukas 2011).
    """
    m, n = out.shape[-2:]
    k = min(m, n)
    square, g_square = out[..., :k, :k], g[..., :k, :k]
    lower = tril(g_square, -1)
    low = lower + op_matmul(t(tril(square, -1)), lower)
    high = op_matmul(triu(g_square), t(triu(square)))
    if n > k:
        low = low - op_matmul(g[..., :k, k:], t(out[..., :k, k:]))
    if m > k:
        high = high - op_matmul(t(out[..., k:, :k]), g[..., k:, :k])
    left = solve_triangular_left(t(square), tril(low, -1) + triu(high), True, True)
    result = t(solve_triangular_left(square, t(left), True))
    if n > k:
        result = concat([result, solve_triangular_left(t(square), g[..., :k, k:], True, True)], -1)
    if m > k:
        result = concat([result, t(solve_triangular_left(square, t(g[..., k:, :k]), True))], -2)
    return op_matmul(permutation_matrix(pivots - start if start else pivots, m, out.dtype), result)


def _program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    if params["check"]:
        return checked(lambda a: lu_factors(a, params["pivot"], False, params["start"]), "lu_factor", SINGULAR)
    spec = first_tensor(specs)
    if is_small(spec) or _is_panel(spec):
        return Declined("the matrices are small, or tall panels")
    return DeviceProgram(lambda a: _factor_in_blocks(a, params["pivot"], params["start"]), blocked=True)


def _factor_in_blocks(a: TensorLike, pivot: bool, start: int) -> tuple[Any, Any, Any]:
    out, pivots, info = _in_blocks(a, pivot, start)
    return out, concat(pivots, -1), first_failure(info)


def _is_panel(a: Spec | TensorLike) -> bool:
    return a.shape[-1] <= PANEL


def _in_blocks(a: TensorLike, pivot: bool, start: int) -> tuple[Any, list[Any], list[Any]]:
    """Factor the left columns, apply their steps to the right ones, and factor the rows below.

    Returns the factors, and the pivots and the first zero pivot of each part.
    """
    m, n = a.shape[-2:]
    if is_small(a) or _is_panel(a):
        out, pivots, info = lu_factors(a, pivot, False, start)
        return out, [pivots], [info]
    k = min(m, n)
    middle = half(k, PANEL) if k > PANEL else k
    left, first_pivots, first_info = _in_blocks(a[..., :middle], pivot, start)
    right = a[..., middle:]
    if pivot:
        right = rows_in_order(right, row_order(concat(first_pivots, -1), m, 0, start))
    top = solve_triangular_left(left[..., :middle, :], right[..., :middle, :], False, True)
    if middle == m:
        return concat([left, top], -1), first_pivots, first_info
    rest = minus_product(right[..., middle:, :], left[..., middle:, :], top)
    rest, pivots, info = _in_blocks(rest, pivot, start + middle)
    if pivot:
        left = rows_in_order(left, row_order(concat(pivots, -1), m, middle, start))
    return concat([left, concat([top, rest], -2)], -1), first_pivots + pivots, first_info + info


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases = [((2, 4, 4), True), ((2, 3, 5), True), ((2, 5, 2), True), ((2, 3, 3), False), ((3, 0), True)]
    return [
        Sample((well_conditioned(rng, *s) + (0 if pivot else 4 * np.eye(s[-1])),), {"pivot": pivot, "start": start})
        for start, (s, pivot) in enumerate(cases)
    ]


lu_factors: OpFunction = declare(
    _lu_factors,
    name="lu_factors",
    family="decomposition",
    infer=_infer,
    outputs=("out", "pivots", "info"),
    lowering=(OnDevice(_program), LAPACK),
    gradient=_gradient,
    samples=_samples,
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _row_order(pivots: Array, *, rows: int, first: int = 0, start: int = 0) -> Any:
    """The row in each place (..., rows) after the exchanges of rows that pivots (..., k), numbered from 1, represent.

    The first exchange is of row `first`. `start` is the number of rows of the matrix before these, which pivots include.
    """
    pivots = np.asarray(pivots) - start
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.broadcast_to(np.arange(rows, dtype=np.int32), (flat.shape[0], rows)).copy()
    every = np.arange(flat.shape[0])
    for j in range(flat.shape[-1]):
        other, place = flat[:, j] - 1, first + j
        order[every, other], order[:, place] = order[:, place].copy(), order[every, other].copy()
    return order.reshape(*pivots.shape[:-1], rows)


def _infer_order(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    if not spec.dtype.is_integral or spec.ndim < 1:
        raise ValueError(f"pivots {spec}; expected integers (..., k)")
    return [(dtypes.int32, (*spec.shape[:-1], params["rows"]))]


_EXCHANGES = OnHost("a sequence of exchanges of rows that each depend on the one before")

row_order: OpFunction = declare(
    _row_order,
    name="row_order",
    family="decomposition",
    infer=_infer_order,
    lowering=_EXCHANGES,
    samples=lambda rng: [
        Sample((np.array([2, 3, 3], np.int32),), {"rows": 4}),
        Sample((np.array([[1, 2], [2, 2]], np.int32),), {"rows": 2}),
        Sample((np.array([[3, 300, 3]], np.int32),), {"rows": 300}),
        Sample((np.array([[18, 16], [15, 15]], np.int32),), {"rows": 8, "first": 4, "start": 10}),
        Sample((np.zeros((2, 0), np.int32),), {"rows": 2}),
    ],
    errors=[ErrorSample((np.zeros(2),), {"rows": 2}, ValueError, "expected integers")],
    public=False,
)


def _permutation_matrix(pivots: Array, *, rows: int, dtype: Any) -> Any:
    """The matrix P (..., rows, rows) of `a = P @ L @ U` that pivots (..., k), numbered from 1, represent."""
    matrix = np.eye(rows, dtype=dtypes.as_dtype(dtype).numpy)[_row_order(pivots, rows=rows)]
    return np.swapaxes(matrix, -2, -1)


def _permutation_program(specs: Specs, params: Params) -> DeviceProgram:
    rows = params["rows"]

    def program(pivots: TensorLike) -> Any:
        order = unsqueeze(row_order(pivots, rows), -2)
        return cast(equal(order, reshape(arange(0, rows, 1, dtypes.int32), (rows, 1))), dtype=params["dtype"])

    return DeviceProgram(program)


def _infer_permutation(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    params["dtype"] = dtypes.as_dtype(params["dtype"])
    if not spec.dtype.is_integral or spec.ndim < 1:
        raise ValueError(f"pivots {spec}; expected integers (..., k)")
    return [(params["dtype"], (*spec.shape[:-1], params["rows"], params["rows"]))]


permutation_matrix: OpFunction = declare(
    _permutation_matrix,
    name="permutation_matrix",
    family="decomposition",
    infer=_infer_permutation,
    lowering=(OnDevice(_permutation_program), _EXCHANGES),
    samples=lambda rng: [
        Sample((np.array([2, 3, 3], np.int32),), {"rows": 4, "dtype": dtypes.float32}),
        Sample((np.array([[1, 2], [2, 2]], np.int32),), {"rows": 2, "dtype": dtypes.float32}),
    ],
    tolerance=Tolerance(0.0),
    public=False,
)
