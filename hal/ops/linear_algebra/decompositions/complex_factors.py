"""Factors of complex matrices, as pairs of real and imaginary parts: QR, spectra of Hermitian matrices, singular vectors,
and determinants.

Vectors are unique up to their phases: only functions that do not depend on these have a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.errors import AutogradError, LinAlgError, message
from polyhal.hal.ops.complex_numbers.functions import adjoint
from polyhal.hal.ops.complex_numbers.rules import join
from polyhal.hal.ops.declare import Autocast, ErrorSample, OpFunction, Output, Sample, Specs, declare, first_tensor
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.diagonal import diagonal_view, embed_diagonal, identity_like
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.triangle import tril
from polyhal.hal.ops.linear_algebra.decompositions.on_host import (
    LAPACK,
    LAPACK_DTYPES,
    LAPACK_ERROR,
    require_matrices,
    well_conditioned,
)
from polyhal.hal.ops.linear_algebra.decompositions.solve import inverse_matrix, solve_system
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.tensor_like import Array, TensorLike

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _of_parts(re: Array, im: Array) -> np.ndarray:
    re = np.asarray(re)
    return (re + 1j * np.asarray(im)).astype(np.result_type(re.dtype, np.complex64))


def _parts(*factors: Any) -> tuple[Any, ...]:
    """The real and imaginary part of each complex factor, and real ones."""
    return tuple(p for x in factors for p in ((x.real, x.imag) if np.iscomplexobj(x) else (x,)))


def _converged(name: str, compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except np.linalg.LinAlgError as error:
        raise LinAlgError(message(name, "the iteration does not converge", expected="finite elements")) from error


def _joined(re: TensorLike | None, im: TensorLike | None) -> Any:
    """The gradient of a complex factor; None if it has none."""
    return None if re is None and im is None else join(0 if re is None else re, 0 if im is None else im)


def _on_diagonal(x: Any) -> Any:
    """Real square matrices with the last axis of `x` as diagonal."""
    return embed_diagonal(x, (*x.shape, x.shape[-1]), 0, -2, -1)


def _plus(x: TensorLike | None, y: TensorLike) -> Any:
    return y if x is None else x + y


def _declare(
    reference: Callable[..., Any], name: str, outputs: tuple[str, ...], infer: Any, gradient: Any, samples: Any
) -> OpFunction:
    return declare(
        reference,
        name=name,
        family="decomposition",
        infer=infer,
        outputs=outputs,
        lowering=LAPACK,
        gradient=gradient,
        samples=samples,
        errors=[ErrorSample((np.zeros(3), np.zeros(3)), {}, ValueError, r"expected \(...")],
        dtypes=LAPACK_DTYPES,
        tolerance=LAPACK_ERROR,
        autocast=Autocast.FLOAT32,
        public=False,
    )


def _matrices(rng: np.random.Generator, *shape: int) -> tuple[Any, Any]:
    return well_conditioned(rng, *shape), 0.2 * rng.uniform(-1, 1, shape)


# --- QR -------------------------------------------------------------------------------------------------------------


def _unitary_factors(re: Array, im: Array, *, mode: str = "reduced") -> Any:
    """Q with orthonormal columns and the upper triangular R of complex matrices; mode "r" leaves Q empty."""
    a = _of_parts(re, im)
    if mode == "r":
        return _parts(np.zeros((*a.shape[:-2], 0, 0), a.dtype), np.linalg.qr(a, "r"))
    return _parts(*np.linalg.qr(a, mode))  # type: ignore[call-overload]


def _infer_unitary(specs: Specs, params: Params) -> list[Output]:
    spec, mode = first_tensor(specs), params["mode"]
    require_matrices("qr", spec)
    *batch, m, n = spec.shape
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"mode {mode!r}; expected 'reduced', 'complete' or 'r'")
    k = m if mode == "complete" else min(m, n)
    q = (*batch, 0, 0) if mode == "r" else (*batch, m, k)
    return [(spec.dtype, q)] * 2 + [(spec.dtype, (*batch, k, n))] * 2


def _unitary_gradient(
    g_q_re: TensorLike | None,
    g_q_im: TensorLike | None,
    g_r_re: TensorLike | None,
    g_r_im: TensorLike | None,
    q_re: TensorLike,
    q_im: TensorLike,
    r_re: TensorLike,
    r_im: TensorLike,
    *,
    mode: str,
) -> Any:
    """dA = (dQ + Q herm(R dR^H - dQ^H Q)) R^-H, where herm mirrors the lower triangle (Roberts and Roberts 2020)."""
    q, r = join(q_re, q_im), join(r_re, r_im)
    m, n = q.shape[-2], r.shape[-1]
    if mode == "r" or (mode == "complete" and m > n):
        problem = f"the factors of mode {mode!r} have no gradient"
        raise AutogradError(message("qr", problem, expected="mode 'reduced'"))
    g_q, g_r = _joined(g_q_re, g_q_im), _joined(g_r_re, g_r_im)
    g_q = q * 0 if g_q is None else g_q
    g_r = r * 0 if g_r is None else g_r
    rest = None
    if n > m:
        rest = op_matmul(q, g_r[..., m:])
        g_q = g_q + op_matmul(op_matmul(q, r[..., m:]), adjoint(g_r[..., m:]))
        r, g_r = r[..., :m], g_r[..., :m]
    middle = tril(op_matmul(r, adjoint(g_r)) - op_matmul(adjoint(g_q), q))
    middle = middle + adjoint(middle) - _on_diagonal(diagonal_view(middle.real, 0, -2, -1))
    # X = Y R^-H is R X^H = Y^H, solved for X^H.
    left = adjoint(solve_system(r, adjoint(g_q + op_matmul(q, middle)), False)[0])
    out = left if rest is None else concat([left, rest], -1)
    return out.real, out.imag


unitary_factors: OpFunction = _declare(
    _unitary_factors,
    "unitary_factors",
    ("q_re", "q_im", "r_re", "r_im"),
    _infer_unitary,
    _unitary_gradient,
    lambda rng: [
        Sample(_matrices(rng, *shape), {"mode": mode}, differentiable=False)
        for shape, mode in [((2, 4, 3), "reduced"), ((2, 3, 4), "complete"), ((2, 3, 3), "r"), ((0, 3), "reduced")]
    ],
)


# --- Hermitian matrices ---------------------------------------------------------------------------------------------


def _hermitian_spectrum(re: Array, im: Array, *, uplo: Any = "L") -> Any:
    """Eigenvalues, ascending, and eigenvectors as columns of Hermitian matrices. One triangle is read."""
    return _parts(*_converged("eigh", lambda: np.linalg.eigh(_of_parts(re, im), uplo)))


def _infer_hermitian(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("eigh", spec, square=True)
    if params["uplo"] not in ("L", "U"):
        raise ValueError(f"UPLO {params['uplo']!r}; expected 'L' or 'U'")
    return [(spec.dtype, spec.shape[:-1]), (spec.dtype, spec.shape), (spec.dtype, spec.shape)]


def _hermitian_gradient(
    g_values: TensorLike | None,
    g_v_re: TensorLike | None,
    g_v_im: TensorLike | None,
    values: TensorLike,
    v_re: TensorLike,
    v_im: TensorLike,
) -> Any:
    """dA = V (diag(dw) + V^H dV / (w_j - w_i)) V^H (Boeddeker et al. 2017)."""
    vectors, g_vectors = join(v_re, v_im), _joined(g_v_re, g_v_im)
    inner = None if g_values is None else _on_diagonal(g_values)
    if g_vectors is not None:
        one = identity_like(v_re)
        gaps = unsqueeze(values, -2) - unsqueeze(values, -1) + one
        inner = _plus(inner, op_matmul(adjoint(vectors), g_vectors) * ((1 - one) / gaps))
    out = op_matmul(op_matmul(vectors, inner), adjoint(vectors))
    return out.real, out.imag


def _hermitian_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(uplo: str, *shape: int) -> Sample:
        q, _ = np.linalg.qr(rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape))
        a = (q * np.linspace(1.0, 3.0, shape[-1])) @ np.swapaxes(q, -2, -1).conj()
        return Sample((a.real, a.imag), {"uplo": uplo}, differentiable=False)

    return [sample("L", 2, 4, 4), sample("U", 2, 3, 3), sample("L", 0, 0)]


hermitian_spectrum: OpFunction = _declare(
    _hermitian_spectrum,
    "hermitian_spectrum",
    ("values", "v_re", "v_im"),
    _infer_hermitian,
    _hermitian_gradient,
    _hermitian_samples,
)


# --- singular vectors -----------------------------------------------------------------------------------------------


def _complex_singular_factors(re: Array, im: Array, *, full_matrices: bool = True) -> Any:
    """U, S and Vh of complex matrices `U @ diag(S) @ Vh`, with the singular values S descending."""
    return _parts(*_converged("svd", lambda: np.linalg.svd(_of_parts(re, im), full_matrices)))


def _infer_singular(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("svd", spec)
    params["full_matrices"] = full = bool(params["full_matrices"])
    *batch, m, n = spec.shape
    k = min(m, n)
    u, vh = (*batch, m, m if full else k), (*batch, n if full else k, n)
    return [(spec.dtype, shape) for shape in (u, u, (*batch, k), vh, vh)]


def _singular_gradient(
    g_u_re: TensorLike | None,
    g_u_im: TensorLike | None,
    g_s: TensorLike | None,
    g_vh_re: TensorLike | None,
    g_vh_im: TensorLike | None,
    u_re: TensorLike,
    u_im: TensorLike,
    s: TensorLike,
    vh_re: TensorLike,
    vh_im: TensorLike,
) -> Any:
    """As for real matrices (Townsend 2016), and the phases of both vectors by those of U (Wan and Zhang 2019).

    The further columns of full matrices get no gradient: they are not determined.
    """
    m, n, k = u_re.shape[-2], vh_re.shape[-1], s.shape[-1]
    u, vh = join(u_re, u_im)[..., :k], join(vh_re, vh_im)[..., :k, :]
    g_u, g_vh = _joined(g_u_re, g_u_im), _joined(g_vh_re, g_vh_im)
    inner = None if g_s is None else _on_diagonal(g_s)
    columns, rows = unsqueeze(s, -2), unsqueeze(s, -1)
    one = identity_like(u_re[..., :k, :k])
    others = (1 - one) / ((columns - rows) * (columns + rows) + one)
    result = None
    if g_u is not None:
        g_u = g_u[..., :k]
        turned = op_matmul(adjoint(u), g_u)
        turned = turned - adjoint(turned)
        inner = _plus(inner, turned * (others * columns + one / (columns * 2)))
        if m > k:
            scaled = g_u / columns
            result = op_matmul(scaled - op_matmul(u, op_matmul(adjoint(u), scaled)), vh)
    if g_vh is not None:
        g_vh = g_vh[..., :k, :]
        turned = op_matmul(vh, adjoint(g_vh))
        inner = _plus(inner, (turned - adjoint(turned)) * (others * rows))
        if n > k:
            scaled = g_vh / rows
            result = _plus(result, op_matmul(u, scaled - op_matmul(op_matmul(scaled, adjoint(vh)), vh)))
    out = _plus(result, op_matmul(op_matmul(u, inner), vh))
    return out.real, out.imag


complex_singular_factors: OpFunction = _declare(
    _complex_singular_factors,
    "complex_singular_factors",
    ("u_re", "u_im", "s", "vh_re", "vh_im"),
    _infer_singular,
    _singular_gradient,
    lambda rng: [
        Sample(_matrices(rng, *shape), {"full_matrices": full}, differentiable=False)
        for shape, full in [((2, 4, 4), False), ((2, 3, 3), True), ((0, 3), False)]
    ],
)


# --- determinants ---------------------------------------------------------------------------------------------------


def _complex_log_determinant(re: Array, im: Array) -> Any:
    """Phases, as complex numbers of absolute value 1, and logarithms of the absolute values of determinants."""
    return _parts(*np.linalg.slogdet(_of_parts(re, im)))


def _infer_determinant(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("slogdet", spec, square=True)
    return [(spec.dtype, spec.shape[:-2])] * 3


def _determinant_gradient(
    g_sign_re: TensorLike | None,
    g_sign_im: TensorLike | None,
    g_logabsdet: TensorLike | None,
    re: TensorLike,
    im: TensorLike,
    sign_re: TensorLike,
    sign_im: TensorLike,
) -> Any:
    """dA = (dl + i Im(ds conj(s))) A^-H, for the phase s and the logarithm l."""
    scale: Any = 0 if g_logabsdet is None else g_logabsdet
    g_sign = _joined(g_sign_re, g_sign_im)
    if g_sign is not None:
        scale = join(scale, (g_sign * join(sign_re, -sign_im)).imag)
    back = adjoint(inverse_matrix(join(re, im), False)[0])
    out = back * unsqueeze(unsqueeze(scale, -1), -1)
    return out.real, out.imag


complex_log_determinant: OpFunction = _declare(
    _complex_log_determinant,
    "complex_log_determinant",
    ("sign_re", "sign_im", "logabsdet"),
    _infer_determinant,
    _determinant_gradient,
    lambda rng: [Sample(_matrices(rng, *shape)) for shape in [(2, 4, 4), (2, 1, 1), (0, 0)]],
)
