"""Eigenvalues and eigenvectors of square matrices that need not be symmetric. Results are complex, as pairs of parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.errors import LinAlgError, message
from polyhal.hal.layout import Spec
from polyhal.hal.ops.complex_numbers.rules import imag, join, real
from polyhal.hal.ops.declare import Autocast, ErrorSample, OpFunction, Output, Sample, Specs, declare, first_tensor
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.diagonal import embed_diagonal, identity_like
from polyhal.hal.ops.linear_algebra.decompositions.on_host import LAPACK, LAPACK_DTYPES, LAPACK_ERROR, require_matrices
from polyhal.hal.ops.linear_algebra.decompositions.solve import solve_system
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _eigen(re: Array, im: Array | None = None) -> Any:
    """Real and imaginary parts of the eigenvalues and of the eigenvectors, columns of norm 1, of matrices (..., n, n)."""
    re = np.asarray(re)
    a = re if im is None else (re + 1j * np.asarray(im)).astype(np.result_type(re.dtype, np.complex64))
    try:
        values, vectors = np.linalg.eig(a)
    except np.linalg.LinAlgError as error:
        problem = "LAPACK's iteration does not converge"
        raise LinAlgError(message("eig", problem, expected="finite elements")) from error
    return values.real, values.imag, vectors.real, vectors.imag


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    require_matrices("eig", spec, square=True)
    values, vectors = (spec.dtype, spec.shape[:-1]), (spec.dtype, spec.shape)
    return [values, values, vectors, vectors]


def _joined(re: TensorLike | None, im: Any) -> Any:
    return None if re is None and im is None else join(0 if re is None else re, 0 if im is None else im)


def _gradient(
    g_w_re: TensorLike | None,
    g_w_im: TensorLike | None,
    g_v_re: TensorLike | None,
    g_v_im: TensorLike | None,
    w_re: TensorLike,
    w_im: TensorLike,
    v_re: TensorLike,
    v_im: TensorLike,
    im_spec: Spec | None,
) -> Any:
    """dA = V^-H (diag(dw) + (V^H dV - V^H V Re(diag(V^H dV))) / conj(w_j - w_i)) V^H (Boeddeker et al. 2017)."""
    values, vectors = join(w_re, w_im), join(v_re, v_im)
    adjoint = vectors.mH
    g_values, g_vectors = _joined(g_w_re, g_w_im), _joined(g_v_re, g_v_im)
    one = identity_like(v_re)
    inner: Any = None
    if g_values is not None:
        inner = join(*(embed_diagonal(p, (*p.shape, p.shape[-1]), 0, -2, -1) for p in (real(g_values), imag(g_values))))
    if g_vectors is not None:
        turned = op_matmul(adjoint, g_vectors)
        along = sum_(turned.real * one, -1)
        turned = turned - op_matmul(adjoint, vectors * unsqueeze(along, -2))
        gaps = (unsqueeze(values, -2) - unsqueeze(values, -1)).conj() + one
        turned = turned * (1 - one) / gaps
        inner = turned if inner is None else inner + turned
    result, _ = solve_system(adjoint, op_matmul(inner, adjoint), True)
    return result.real, None if im_spec is None else result.imag


def _samples(rng: np.random.Generator) -> list[Sample]:
    # Vectors are unique up to their phases, which finite differences would see.
    basis = np.eye(3) + 0.3 * rng.uniform(-1, 1, (2, 3, 3))
    real_values = basis @ (np.array([3.0, 2.0, 1.0])[:, None] * np.linalg.inv(basis))
    complex_ones = basis @ (np.array([1.0, -2.0, 0.5])[:, None] * np.linalg.inv(basis))
    return [
        Sample((real_values, None), differentiable=False),
        Sample((real_values, complex_ones), differentiable=False),
        Sample((np.zeros((0, 0)), None), differentiable=False),
    ]


eigen: OpFunction = declare(
    _eigen,
    name="eigen",
    family="decomposition",
    infer=_infer,
    outputs=("w_re", "w_im", "v_re", "v_im"),
    lowering=LAPACK,
    gradient=_gradient,
    samples=_samples,
    errors=[ErrorSample((np.zeros((3, 2)), None), {}, ValueError, r"expected \(..., n, n\)")],
    dtypes=LAPACK_DTYPES,
    tolerance=LAPACK_ERROR,
    autocast=Autocast.FLOAT32,
    public=False,
)
