"""Cholesky factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import (
    Autocast,
    DeviceProgram,
    ErrorSample,
    OnDevice,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.diagonal import diagonal_view, embed_diagonal
from polyhal.hal.ops.layout.regions import concat, pad
from polyhal.hal.ops.layout.triangle import tril
from polyhal.hal.ops.linear_algebra.decompositions.blocks import SMALL, first_failure, half, is_small, minus_product
from polyhal.hal.ops.linear_algebra.decompositions.on_device import checked
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    positive_definite,
    require_matrices,
    singular,
    t,
)
from polyhal.hal.ops.linear_algebra.decompositions.triangular import solve_triangular_left
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.protocol import Declined

_PROBLEM = "is not positive definite: its leading minor of order {} is not"


def _failed_minor(a: np.ndarray) -> int:
    """The order of the first leading minor of a matrix that is not positive; 0 if all are."""
    for k in range(1, a.shape[-1] + 1):
        try:
            np.linalg.cholesky(a[:k, :k])
        except np.linalg.LinAlgError:
            return k
    return 0


def _cholesky_factor(a: Array, *, upper: bool = False, check: bool = True, start: int = 0) -> Any:
    """The triangular L with `a = L @ L.T`, or the upper U with `a = U.T @ U`, and per matrix the first minor that fails.

    Only that triangle of `a` is read. `a` may be a part of a matrix: `start` is the number of rows before it, which numbers of
    minors include. Raises LinAlgError if `check` and a matrix is not positive definite.
    """
    a = np.asarray(a)
    lower = np.swapaxes(a, -2, -1) if upper else a
    info = np.zeros(a.shape[:-2], np.int32)
    try:
        out = np.linalg.cholesky(lower)
    except np.linalg.LinAlgError as error:
        out = np.zeros_like(lower)
        for index in np.ndindex(*info.shape):
            info[index] = _failed_minor(lower[index])
            if not info[index]:
                out[index] = np.linalg.cholesky(lower[index])
        if check:
            raise singular("cholesky", info, _PROBLEM) from error
    return np.swapaxes(out, -2, -1) if upper else out, np.where(info == 0, 0, info + start).astype(np.int32)


def refuse_minors(info: np.ndarray) -> None:
    """Raise LinAlgError for the first matrix with another number than 0, the order of a minor that is not positive definite."""
    if info.any():
        raise singular("cholesky", info, _PROBLEM)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("cholesky", spec, square=True)
    return [(spec.dtype, spec.shape), (dtypes.int32, spec.shape[:-2])]


def _gradient(g: TensorLike, out: TensorLike, *, upper: bool) -> Any:
    """dA = (S + S^T) / 2 with S = L^-T tril'(L^T dL) L^-1, where tril' halves the diagonal (Murray 2016)."""
    factor, g = (t(out), t(g)) if upper else (out, g)
    middle = op_matmul(t(factor), tril(g))
    middle = tril(middle) - embed_diagonal(diagonal_view(middle, 0, -2, -1) * 0.5, middle.shape, 0, -2, -1)
    left = solve_triangular_left(t(factor), middle, True)
    both = t(solve_triangular_left(t(factor), t(left), True))
    return (both + t(both)) * 0.5


def _program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    if params["check"]:
        return checked(lambda a: cholesky_factor(a, params["upper"], False, params["start"]), "cholesky", _PROBLEM)
    if is_small(first_tensor(specs)):
        return Declined("the matrices are small")
    return DeviceProgram(lambda a: _blocked_factor(a, params["upper"], params["start"]), blocked=True)


def _blocked_factor(a: TensorLike, upper: bool, start: int) -> Any:
    """Return the factor, 0 where a matrix is not positive definite."""
    out, failures = _in_blocks(t(a) if upper else a, start)
    info = first_failure(failures)
    out = where(equal(unsqueeze(unsqueeze(info, -1), -1), 0), out, 0.0)
    return t(out) if upper else out, info


def _in_blocks(a: TensorLike, start: int) -> tuple[Any, list[Any]]:
    """Return the lower factor of matrices in two blocks of rows, and the first minor that fails, or 0, of each part."""
    n = a.shape[-1]
    if is_small(a):
        out, info = cholesky_factor(a, False, False, start)
        return out, [info]
    middle = half(n, SMALL)
    first, failures = _in_blocks(a[..., :middle, :middle], start)
    below = t(solve_triangular_left(first, t(a[..., middle:, :middle]), False))
    last, later = _in_blocks(minus_product(a[..., middle:, middle:], below, t(below)), start + middle)
    above = pad(first, (*((0, 0),) * (a.ndim - 1), (0, n - middle)))
    return concat([above, concat([below, last], -1)], -2), failures + later


def _samples(rng: np.random.Generator) -> list[Sample]:
    # The reference reads one triangle, while gradients are symmetric: finite differences would not agree.
    return [
        Sample((positive_definite(rng, *shape),), {"upper": upper}, differentiable=False)
        for shape, upper in [((2, 4, 4), False), ((2, 3, 3), True), ((0, 0), False), ((2, 0, 3, 3), False)]
    ]


cholesky_factor: OpFunction = declare(
    _cholesky_factor,
    name="cholesky_factor",
    family="decomposition",
    infer=_infer,
    outputs=("out", "info"),
    lowering=(OnDevice(_program), LAPACK),
    gradient=_gradient,
    samples=_samples,
    errors=[ErrorSample((np.zeros((3, 2)),), {}, ValueError, r"expected \(..., n, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
