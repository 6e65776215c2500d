"""Linear systems of complex numbers as real ones of twice the size: `[[A, -B], [B, A]]` acts as `A + iB`."""

from __future__ import annotations

from typing import Any

from polyhal.hal.ops.complex_numbers.rules import complex_rule, imag, join, real
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.linear_algebra.decompositions.solve import inverse_matrix, solve_system
from polyhal.hal.ops.tensor_like import TensorLike


def real_form(a: TensorLike) -> Any:
    """The real matrix of twice the size that acts as the complex one."""
    re, im = real(a), imag(a)
    return concat([concat([re, -im], -1), concat([im, re], -1)], -2)


@complex_rule(solve_system)
def _solve_system(a: TensorLike, b: TensorLike, *, check: bool) -> Any:
    n = a.shape[-1]
    out, info = solve_system(real_form(a), concat([real(b), imag(b)], -2), check)
    return join(out[..., :n, :], out[..., n:, :]), info


@complex_rule(inverse_matrix)
def _inverse_matrix(a: TensorLike, *, check: bool) -> Any:
    n = a.shape[-1]
    out, info = inverse_matrix(real_form(a), check)
    return join(out[..., :n, :n], out[..., n:, :n]), info
