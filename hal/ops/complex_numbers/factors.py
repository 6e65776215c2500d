"""Factors, spectra and determinants of complex matrices.

`[[A, -B], [B, A]]` has the singular values, eigenvalues and pseudo-inverse of `A + iB`, each value twice. With the rows and
columns of both parts interleaved, its Cholesky factor is the real form of the complex one. Where vectors have phases, ops of
their own compute them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import finfo
from polyhal.hal.ops.complex_numbers.functions import adjoint
from polyhal.hal.ops.complex_numbers.rules import complex_rule, imag, join, real
from polyhal.hal.ops.complex_numbers.systems import real_form
from polyhal.hal.ops.layout.regions import stack
from polyhal.hal.ops.layout.triangle import tril, triu
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.decompositions.cholesky import cholesky_factor, refuse_minors
from polyhal.hal.ops.linear_algebra.decompositions.complex_factors import (
    complex_log_determinant,
    complex_singular_factors,
    hermitian_spectrum,
    unitary_factors,
)
from polyhal.hal.ops.linear_algebra.decompositions.determinant import determinant, log_determinant
from polyhal.hal.ops.linear_algebra.decompositions.pseudo_inverse import pseudo_inverse
from polyhal.hal.ops.linear_algebra.decompositions.qr import qr_factors
from polyhal.hal.ops.linear_algebra.decompositions.spectrum import (
    singular_factors,
    singular_values,
    symmetric_eigenvalues,
    symmetric_spectrum,
)
from polyhal.hal.ops.pointwise.exponential import exp
from polyhal.hal.ops.tensor_like import TensorLike


@complex_rule(cholesky_factor)
def _cholesky(a: TensorLike, *, upper: bool, check: bool, start: int) -> Any:
    lower = adjoint(a) if upper else a
    n, re, im = a.shape[-1], real(lower), imag(lower)
    pairs = stack([stack([re, -im], -1), stack([im, re], -1)], -3)
    out, minors = cholesky_factor(reshape(pairs, (*a.shape[:-2], 2 * n, 2 * n)), False, False, 2 * start)
    info = (minors + 1) // 2
    if check and dispatch.thread.executor.recorder is None:
        refuse_minors(np.asarray(info.detach().numpy()))
    pairs = reshape(out, (*a.shape[:-2], n, 2, n, 2))
    factor = join(pairs[..., :, 0, :, 0], pairs[..., :, 1, :, 0])
    return adjoint(factor) if upper else factor, info


@complex_rule(qr_factors)
def _qr(a: TensorLike, *, mode: str) -> Any:
    q_re, q_im, r_re, r_im = unitary_factors(real(a), imag(a), mode)
    return join(q_re, q_im), join(r_re, r_im)


@complex_rule(symmetric_spectrum)
def _symmetric_spectrum(a: TensorLike, *, uplo: str) -> Any:
    values, re, im = hermitian_spectrum(real(a), imag(a), uplo)
    return values, join(re, im)


@complex_rule(symmetric_eigenvalues)
def _symmetric_eigenvalues(a: TensorLike, *, uplo: str) -> Any:
    part, strict = (tril(a), tril(a, -1)) if uplo == "L" else (triu(a), triu(a, 1))
    whole = join(real(part) + adjoint(real(strict)), imag(strict) - adjoint(imag(strict)))
    return symmetric_eigenvalues(real_form(whole), uplo)[..., ::2]


@complex_rule(singular_factors)
def _singular_factors(a: TensorLike, *, full_matrices: bool) -> Any:
    u_re, u_im, s, vh_re, vh_im = complex_singular_factors(real(a), imag(a), full_matrices)
    return join(u_re, u_im), s, join(vh_re, vh_im)


@complex_rule(singular_values)
def _singular_values(a: TensorLike) -> Any:
    return singular_values(real_form(a))[..., ::2]


@complex_rule(pseudo_inverse)
def _pseudo_inverse(a: TensorLike, atol: Any, rtol: Any, *, hermitian: bool) -> Any:
    m, n = a.shape[-2:]
    if hermitian:
        part, strict = tril(a), tril(a, -1)
        a = join(real(part) + adjoint(real(strict)), imag(strict) - adjoint(imag(strict)))
    if rtol is None and not hasattr(atol, "ref") and not atol:
        rtol = finfo(a.dtype).eps * max(m, n)
    out = pseudo_inverse(real_form(a), atol, rtol, hermitian)
    return join(out[..., :n, :m], out[..., n:, :m])


@complex_rule(log_determinant)
def _log_determinant(a: TensorLike) -> Any:
    re, im, logabsdet = complex_log_determinant(real(a), imag(a))
    return join(re, im), logabsdet


@complex_rule(determinant)
def _determinant(a: TensorLike) -> Any:
    sign, logabsdet = _log_determinant(a)
    return sign * exp(logabsdet)
