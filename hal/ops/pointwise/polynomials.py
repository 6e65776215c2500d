"""erf and atan by rational approximation, from ops that the contract requires."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from polyhal.hal.ops.tensor_like import TensorLike

Op = Callable[..., Any]


def _horner(z: TensorLike, coefficients: tuple[float, ...]) -> Any:
    """Evaluate a polynomial by Horner's scheme, highest coefficient first."""
    value = z * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        value = value * z + c
    return value


# Source: W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969).
ERF_NEAR = (
    (
        1.85777706184603153e-1,
        3.16112374387056560e0,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
ERFC_MIDDLE = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594e0,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
ERFC_FAR = (
    (
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ),
    (
        1.0,
        2.56852019228982242e0,
        1.87295284992346047e0,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ),
)


def erf(x: TensorLike, where: Op, less: Op, exp: Op, absolute: Op) -> Any:
    """The error function, to a few units in the last place of float64.

    The middle formula serves up to 6, beyond which the result rounds to 1; its polynomials stay finite in float32.
    """
    size = absolute(x)
    z = x * x
    inner = where(less(size, 0.5), z, 0.0)
    near = x * (_horner(inner, ERF_NEAR[0]) / _horner(inner, ERF_NEAR[1]))
    t = where(less(size, 6.0), size, 6.0)
    far = 1.0 - exp(-(t * t)) * (_horner(t, ERFC_MIDDLE[0]) / _horner(t, ERFC_MIDDLE[1]))
    return where(less(size, 0.5), near, where(less(x, 0.0), -far, where(less(0.0, x), far, x)))


# Source: the Cephes Mathematical Library, atan: x + x^3 P(x^2)/Q(x^2) on |x| <= 0.66.
_ATAN = (
    (
        -8.750608600031904122785e-1,
        -1.615753718733365076637e1,
        -7.500855792314704667340e1,
        -1.228866684490136173410e2,
        -6.485021904942025371773e1,
    ),
    (
        1.0,
        2.485846490142306297962e1,
        1.650270098316988542046e2,
        4.328810604912902668951e2,
        4.853903996359136964868e2,
        1.945506571482613964425e2,
    ),
)
_TAN_3PI_8 = 2.41421356237309504880


def atan(x: TensorLike, where: Op, less: Op, absolute: Op) -> Any:
    """The inverse tangent, to a few units in the last place of float64."""
    size = absolute(x)
    big, middle = less(_TAN_3PI_8, size), less(0.66, size)
    reduced = where(big, -1.0 / size, where(middle, (size - 1.0) / (size + 1.0), size))
    # A sum of flags: choosing between Python numbers would give float32.
    base = (big.cast(dtype=x.dtype) + less(0.66, size).cast(dtype=x.dtype)) * (math.pi / 4)
    z = reduced * reduced
    angle = base + (reduced + reduced * (z * (_horner(z, _ATAN[0]) / _horner(z, _ATAN[1]))))
    return where(less(x, 0.0), -angle, where(less(0.0, x), angle, x))  # -0 stays -0
