"""QR factors, and the Householder vectors that LAPACK makes them of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    DeviceProgram,
    ErrorSample,
    OnDevice,
    OpFunction,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.diagonal import diagonal_view, embed_diagonal, identity_like
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.triangle import tril, triu
from polyhal.hal.ops.layout.views import broadcast_to
from polyhal.hal.ops.linear_algebra.decompositions.blocks import PANEL, half, is_small, minus_product
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    require_matrices,
    t,
    well_conditioned,
)
from polyhal.hal.ops.linear_algebra.decompositions.triangular import solve_triangular_left
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.protocol import Declined

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _qr_factors(a: Array, *, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and the upper triangular R with `a = Q @ R`; mode "r" leaves Q empty."""
    a = np.asarray(a)
    if mode == "r":
        return np.zeros((*a.shape[:-2], 0, 0), a.dtype), np.linalg.qr(a, "r")
    return tuple(np.linalg.qr(a, mode))  # type: ignore[call-overload]


def _infer_qr(specs: Specs, params: Params) -> list[Output]:
    spec, mode = first_tensor(specs), params["mode"]
    require_matrices("qr", spec)
    *batch, m, n = spec.shape
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"mode {mode!r}; expected 'reduced', 'complete' or 'r'")
    k = m if mode == "complete" else min(m, n)
    q = (*batch, 0, 0) if mode == "r" else (*batch, m, k)
    return [(spec.dtype, q), (spec.dtype, (*batch, k, n))]


def _qr_gradient(g_q: TensorLike | None, g_r: TensorLike | None, q: TensorLike, r: TensorLike, *, mode: str) -> Any:
    """dA = (dQ + Q copyltu(R dR^T - dQ^T Q)) R^-T; columns beyond the rows by Roberts and Roberts 2020."""
    m, n = q.shape[-2], r.shape[-1]
    if mode == "r" or (mode == "complete" and m > n):
        problem = f"the factors of mode {mode!r} have no gradient"
        raise AutogradError(message("qr", problem, expected="mode 'reduced'"))
    g_q = q * 0 if g_q is None else g_q
    g_r = r * 0 if g_r is None else g_r
    rest = None
    if n > m:
        rest = op_matmul(q, g_r[..., m:])
        g_q = g_q + op_matmul(op_matmul(q, r[..., m:]), t(g_r[..., m:]))
        r, g_r = r[..., :m], g_r[..., :m]
    middle = tril(op_matmul(r, t(g_r)) - op_matmul(t(g_q), q))
    middle = middle + t(middle) - embed_diagonal(diagonal_view(middle, 0, -2, -1), middle.shape, 0, -2, -1)
    # X = Y R^-T is R X^T = Y^T, solved for X^T.
    left = t(solve_triangular_left(r, t(g_q + op_matmul(q, middle)), True))
    return left if rest is None else concat([left, rest], -1)


def _qr_program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    a, mode = first_tensor(specs), params["mode"]
    if is_small(a):
        return Declined("the matrices are small")
    return DeviceProgram(lambda a: _factors_of_reflections(a, mode), blocked=True)


def _factors_of_reflections(a: TensorLike, mode: str) -> tuple[Any, Any]:
    packed, tau = householder_factors(a)
    m, k = a.shape[-2], tau.shape[-1]
    if mode == "r":
        return packed[..., :0, :0], triu(packed[..., :k, :])
    kept = m if mode == "complete" else k
    vectors, mixed = reflectors(packed, tau)
    right = t(vectors[..., :kept, :]) * unsqueeze(tau, -1)
    one = identity_like(broadcast_to(vectors[..., :1], (*vectors.shape[:-1], kept)))
    return minus_product(one, vectors, solve_triangular_left(mixed, right, True, True)), triu(packed[..., :kept, :])


def _unit_lower(a: Array) -> Any:
    """The lower triangles of matrices (..., m, n) with ones on the diagonal."""
    a = np.asarray(a)
    return np.tril(a, -1) + np.eye(*a.shape[-2:], dtype=a.dtype)


def _infer_unit_lower(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("unit_lower", spec)
    return [(spec.dtype, spec.shape)]


unit_lower: OpFunction = declare(
    _unit_lower,
    name="unit_lower",
    family="decomposition",
    infer=_infer_unit_lower,
    lowering=Decompose(lambda a: tril(a, -1) + identity_like(a)),
    gradient=lambda g: tril(g, -1),
    samples=lambda rng: [Sample((rng.uniform(-1, 1, s),)) for s in [(2, 4, 3), (3, 5), (0, 2)]],
    errors=[ErrorSample((np.zeros(3),), {}, ValueError, r"expected \(..., m, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=Tolerance(0.0),
    autocast=Autocast.FLOAT32,
    public=False,
)


def reflectors(packed: TensorLike, tau: TensorLike) -> tuple[Any, Any]:
    """The Householder vectors V as columns, and S of `H1 @ ... @ Hk = I - V (I + S)^-1 diag(tau) V^T`.

    S is the strict upper triangle of a matrix (Joffrain et al. 2006, Accumulating Householder transformations, revisited).
    """
    vectors = unit_lower(packed[..., : tau.shape[-1]])
    return vectors, op_matmul(t(vectors), vectors) * unsqueeze(tau, -1)


def _qr_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(shape: tuple[int, ...], mode: str, differentiable: bool = True) -> Sample:
        return Sample((well_conditioned(rng, *shape),), {"mode": mode}, differentiable=differentiable)

    return [
        sample((2, 4, 3), "reduced"),
        sample((2, 3, 5), "reduced"),
        sample((2, 3, 3), "complete"),
        sample((2, 4, 2), "complete", False),
        sample((2, 3, 2), "r", False),
        sample((0, 3), "reduced"),
    ]


qr_factors: OpFunction = declare(
    _qr_factors,
    name="qr_factors",
    family="decomposition",
    infer=_infer_qr,
    outputs=("q", "r"),
    lowering=(OnDevice(_qr_program), LAPACK),
    gradient=_qr_gradient,
    samples=_qr_samples,
    errors=[ErrorSample((np.eye(2),), {"mode": "full"}, ValueError, "expected 'reduced', 'complete' or 'r'")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)


def _householder_factors(a: Array) -> Any:
    """R above and Householder vectors below the diagonal, and their scales tau (LAPACK's geqrf)."""
    a = np.asarray(a)
    if 0 in a.shape[-2:]:
        return a, np.zeros((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    packed, tau = np.linalg.qr(a, "raw")
    return np.swapaxes(packed, -2, -1), tau


def _infer_householder(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("geqrf", spec)
    return [(spec.dtype, spec.shape), (spec.dtype, (*spec.shape[:-2], min(spec.shape[-2:])))]


def _householder_program(specs: Specs, params: Params) -> DeviceProgram | Declined:
    a = first_tensor(specs)
    if is_small(a) or a.shape[-1] <= PANEL:
        return Declined("the matrices are small, or tall panels")
    return DeviceProgram(_in_blocks, blocked=True)


def _in_blocks(a: TensorLike) -> Any:
    """Reflect the left columns, apply their reflections to the right ones, and reflect the rows below."""
    m, n = a.shape[-2:]
    if is_small(a) or n <= PANEL:
        return householder_factors(a)
    middle = half(min(m, n), PANEL) if min(m, n) > PANEL else min(m, n)
    left, tau = _in_blocks(a[..., :middle])
    vectors, mixed = reflectors(left, tau)
    right = a[..., middle:]
    inner = solve_triangular_left(t(mixed), op_matmul(t(vectors), right), False, True) * unsqueeze(tau, -1)
    right = minus_product(right, vectors, inner)
    if middle == m:
        return concat([left, right], -1), tau
    rest, later = _in_blocks(right[..., middle:, :])
    return concat([left, concat([right[..., :middle, :], rest], -2)], -1), concat([tau, later], -1)


householder_factors: OpFunction = declare(
    _householder_factors,
    name="householder_factors",
    family="decomposition",
    infer=_infer_householder,
    outputs=("out", "tau"),
    lowering=(OnDevice(_householder_program), LAPACK),
    samples=lambda rng: [Sample((well_conditioned(rng, *s),)) for s in [(2, 4, 3), (2, 3, 4), (0, 2)]],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
