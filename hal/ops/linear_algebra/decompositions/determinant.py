"""Determinants and their derivatives, which also exist where a matrix is singular."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import (
    Autocast,
    DeviceProgram,
    ErrorSample,
    OnDevice,
    OpFunction,
    Output,
    Sample,
    Specs,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.diagonal import diagonal_view, identity_like
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.decompositions.blocks import is_small
from polyhal.hal.ops.linear_algebra.decompositions.jacobi import singular_jacobi
from polyhal.hal.ops.linear_algebra.decompositions.lu import lu_factors
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    require_matrices,
    t,
    well_conditioned,
)
from polyhal.hal.ops.linear_algebra.decompositions.solve import inverse_matrix
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.arithmetic import abs_, sign
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.pointwise.exponential import log
from polyhal.hal.ops.pointwise.logic import equal, less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.sums import prod, sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.protocol import Declined

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("det", spec, square=True)
    return [(spec.dtype, spec.shape[:-2])]


def _infer_same(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("det", spec, square=True)
    return [(spec.dtype, spec.shape)]


def _per_matrix(x: TensorLike) -> Any:
    """A number for each matrix, so that it broadcasts over their elements."""
    return reshape(x, (*x.shape, 1, 1))


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((well_conditioned(rng, *s) / 2,)) for s in [(2, 4, 4), (2, 3, 3), (1, 1), (0, 0)]]


def _signed_pivots(a: TensorLike) -> tuple[Any, Any]:
    """The pivots of LU factors, and for each -1 if its step exchanged rows, or 1."""
    lu, places, _ = lu_factors(a, True, False)
    kept = equal(places, arange(1, a.shape[-1] + 1, 1, dtypes.int32))
    return diagonal_view(lu, 0, -2, -1), where(kept, 1.0, -1.0)


def _determinant_program(specs: Specs, params: Params) -> DeviceProgram:
    def program(a: TensorLike) -> Any:
        pivots, signs = _signed_pivots(a)
        return prod(pivots * signs, -1)

    return DeviceProgram(program, blocked=not is_small(first_tensor(specs)))


def _log_program(specs: Specs, params: Params) -> DeviceProgram:
    def program(a: TensorLike) -> Any:
        pivots, signs = _signed_pivots(a)
        signs = where(equal(pivots, 0), 0.0, where(less(pivots, 0), -1.0, 1.0)) * signs
        return prod(cast(signs, dtype=a.dtype), -1), sum_(log(abs_(pivots)), -1)

    return DeviceProgram(program, blocked=not is_small(first_tensor(specs)))


def _determinant(a: Array) -> Any:
    """Determinants of square matrices."""
    return np.linalg.det(np.asarray(a))


determinant: OpFunction = declare(
    _determinant,
    name="determinant",
    family="decomposition",
    infer=_infer,
    lowering=(OnDevice(_determinant_program), LAPACK),
    gradient=lambda g, a: _per_matrix(g) * cofactors(a),
    samples=_samples,
    errors=[ErrorSample((np.zeros((3, 2)),), {}, ValueError, r"expected \(..., n, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _others(s: np.ndarray) -> np.ndarray:
    """The products of all elements of the last axis but one."""
    n = s.shape[-1]
    return np.asarray(np.prod(np.where(np.eye(n, dtype=bool), 1, s[..., None, :]), axis=-1))


def _orthogonal_sign(u: np.ndarray, vh: np.ndarray) -> np.ndarray:
    return np.asarray(np.sign(np.linalg.det(u) * np.linalg.det(vh)), u.dtype)[..., None, None]


def _singular_values(a: np.ndarray) -> tuple[Any, Any, Any]:
    """Return the singular value decomposition of matrices. With an infinite or NaN element, all its values are NaN."""
    finite = np.isfinite(a).all((-2, -1), keepdims=True)
    u, s, vh = np.linalg.svd(np.where(finite, a, 0))
    return u, np.where(finite[..., 0], s, np.nan), vh


def _cofactors(a: Array) -> Any:
    """The derivatives of the determinant by each element, from singular values: no division by those (Stewart 1998)."""
    u, s, vh = _singular_values(np.asarray(a))
    return _orthogonal_sign(u, vh) * ((u * _others(s)[..., None, :]) @ vh)


def _cofactors_program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    if not is_small(first_tensor(specs)):
        return Declined("the matrices are large")
    return DeviceProgram(_cofactors_of_factors)


def _cofactors_of_factors(a: TensorLike) -> Any:
    u, s, vh, _ = singular_jacobi(a)
    numbers = arange(0, s.shape[-1], 1, dtypes.int32)
    others = prod(where(equal(unsqueeze(numbers, -1), numbers), 1.0, unsqueeze(s, -2)), -1)
    orientation = sign(determinant(u) * determinant(vh))
    return _per_matrix(orientation) * op_matmul(u * unsqueeze(others, -2), vh)


cofactors: OpFunction = declare(
    _cofactors,
    name="cofactors",
    family="decomposition",
    infer=_infer_same,
    lowering=(OnDevice(_cofactors_program), LAPACK),
    gradient=lambda g, a: cofactors_derivative(a, g),
    samples=_samples,
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _cofactors_derivative(a: Array, direction: Array) -> Any:
    """The derivative of the cofactors along `direction`; the same formula is the gradient, as it is symmetric.

    For a diagonal matrix and p_ij the product of all of its elements but i and j, it is -p_ij d_ji off the diagonal, and the
    sum of p_ij d_jj on it; singular vectors turn every matrix into that case.
    """
    u, s, vh = _singular_values(np.asarray(a))
    n = s.shape[-1]
    one = np.eye(n, dtype=bool)
    left_out = one[:, None, :] | one[None, :, :]
    pairs = np.where(one, 0, np.prod(np.where(left_out, 1, s[..., None, None, :]), axis=-1))
    turned = np.swapaxes(u, -2, -1) @ np.asarray(direction) @ np.swapaxes(vh, -2, -1)
    own = np.einsum("...ij,...jj->...i", pairs, turned)
    inner = -pairs * np.swapaxes(turned, -2, -1) + own[..., None] * one
    return (_orthogonal_sign(u, vh) * (u @ inner @ vh)).astype(s.dtype)


def _third_derivative(g: TensorLike, a: TensorLike, direction: TensorLike) -> Any:
    """Return the third derivative of the determinant along two directions, by the inverse of regular matrices.

    It is the derivative of det A (tr X tr Y - tr XY), where X and Y are the inverse times each direction.
    """
    inverse, _ = inverse_matrix(a, False)
    x, y = op_matmul(inverse, g), op_matmul(inverse, direction)
    along_x, along_y, both = _trace(x), _trace(y), _trace(op_matmul(x, y))
    one = identity_like(x)
    inner = op_matmul(x, y) + op_matmul(y, x) - along_y * x - along_x * y + (along_x * along_y - both) * one
    return _per_matrix(determinant(a)) * t(op_matmul(inner, inverse))


def _trace(a: TensorLike) -> Any:
    return sum_(a * identity_like(a), (-2, -1), True)


cofactors_derivative: OpFunction = declare(
    _cofactors_derivative,
    name="cofactors_derivative",
    family="decomposition",
    infer=_infer_same,
    lowering=LAPACK,
    gradient=(_third_derivative, lambda g, a: cofactors_derivative(a, g)),
    samples=lambda rng: [Sample((well_conditioned(rng, *s), rng.uniform(-1, 1, s))) for s in [(2, 4, 4), (2, 2, 2)]],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _log_determinant(a: Array) -> Any:
    """Sign, and logarithm of the absolute value, of determinants; 0 and -infinity for singular matrices."""
    return tuple(np.linalg.slogdet(np.asarray(a)))


def _log_gradient(g_logabsdet: TensorLike | None, a: TensorLike) -> Any:
    """dA = d(log|det A|) A^-T."""
    return None if g_logabsdet is None else _per_matrix(g_logabsdet) * t(inverse_matrix(a, False)[0])


log_determinant: OpFunction = declare(
    _log_determinant,
    name="log_determinant",
    family="decomposition",
    infer=lambda specs, params: _infer(specs, params) * 2,
    outputs=("sign", "logabsdet"),
    lowering=(OnDevice(_log_program), LAPACK),
    gradient=_log_gradient,
    samples=_samples,
    errors=[ErrorSample((np.zeros((3, 2)),), {}, ValueError, r"expected \(..., n, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
