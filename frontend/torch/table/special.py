"""Special functions: gamma, Bessel and error functions, and orthogonal polynomials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.torch.registration import aten, same_op
from polyhal.torch.table.operands import OPS, F, promoted

_UNARY = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 entr erfcx i0e i1 i1e log_ndtr modified_bessel_i0 modified_bessel_i1 "
    "modified_bessel_k0 modified_bessel_k1 ndtri scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0"
)
_POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h "
    "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t "
    "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
)


def _of_two(op: str) -> Callable[[Any, Any], Any]:
    call = OPS[op].call

    def compute(a: Any, b: Any) -> Any:
        return call(*promoted(a, b))

    return compute


same_op("i0", "i0")
for _name in _UNARY.split():
    same_op(_name, f"special_{_name}")
for _name in _POLYNOMIALS.split():
    _entry = f"special_{_name}"
    same_op(_name, _entry, f"{_entry}.x_scalar", f"{_entry}.n_scalar", via=_of_two(_name))
for _name in ("igamma", "igammac"):
    same_op(_name, _name, via=_of_two(_name))
for _name in ("xlog1py", "zeta"):
    _entry = f"special_{_name}"
    same_op(_name, _entry, f"{_entry}.self_scalar", f"{_entry}.other_scalar", via=_of_two(_name))


@aten("polygamma")
def polygamma(n: int, x: Any) -> Any:
    return F["polygamma"](n, x)


@aten("polygamma_")
def polygamma_in_place(x: Any, n: int) -> Any:
    return F["polygamma"](n, x)


@aten("logit")
def logit(x: Any, eps: float | None = None) -> Any:
    return F["logit"](x, eps)


@aten("mvlgamma")
def mvlgamma(x: Any, p: int) -> Any:
    return F["mvlgamma"](x, p)
