"""Generated from the op declarations by `make generate`; do not edit."""

from typing import Any

from polyhal.tensor import Tensor

def airy_ai(x: Any) -> Tensor:
    """Airy function Ai."""

def bessel_j0(x: Any) -> Tensor:
    """Bessel function J of order 0."""

def bessel_j1(x: Any) -> Tensor:
    """Bessel function J of order 1."""

def bessel_y0(x: Any) -> Tensor:
    """Bessel function Y of order 0."""

def bessel_y1(x: Any) -> Tensor:
    """Bessel function Y of order 1."""

def chebyshev_polynomial_t(x: Any, n: Any) -> Tensor:
    """Chebyshev polynomial of the first kind of degree `n` at `x`; 0 for a negative degree."""

def chebyshev_polynomial_u(x: Any, n: Any) -> Tensor:
    """Chebyshev polynomial of the second kind of degree `n` at `x`; 0 for a negative degree."""

def chebyshev_polynomial_v(x: Any, n: Any) -> Tensor:
    """Chebyshev polynomial of the third kind of degree `n` at `x`; 0 for a negative degree."""

def chebyshev_polynomial_w(x: Any, n: Any) -> Tensor:
    """Chebyshev polynomial of the fourth kind of degree `n` at `x`; 0 for a negative degree."""

def digamma(x: Any) -> Tensor:
    """Logarithmic derivative of the gamma function; NaN at the negative integers."""

def entr(x: Any) -> Tensor:
    """Entropy `-x * log(x)`: 0 at 0, negative infinity below."""

def erf(x: Any) -> Tensor:
    """Error function."""

def erfc(x: Any) -> Tensor:
    """Complementary error function `1 - erf(x)`, accurate for large `x`."""

def erfcx(x: Any) -> Tensor:
    """Scaled complementary error function `exp(x * x) * erfc(x)`."""

def erfinv(x: Any) -> Tensor:
    """Inverse of the error function; infinite at 1 and -1, NaN beyond."""

def exp2(x: Any) -> Tensor:
    """2 to the power `x`."""

def expit(x: Any) -> Tensor:
    """Logistic function `1 / (1 + exp(-x))`."""

def expm1(x: Any) -> Tensor:
    """`exp(x) - 1`, accurate near 0."""

def gammainc(a: Any, x: Any) -> Tensor:
    """Regularized lower incomplete gamma function P(a, x)."""

def gammaincc(a: Any, x: Any) -> Tensor:
    """Regularized upper incomplete gamma function Q(a, x)."""

def gammaln(x: Any) -> Tensor:
    """Logarithm of the absolute value of the gamma function; infinite at 0 and the negative integers."""

def hermite_polynomial_h(x: Any, n: Any) -> Tensor:
    """Physicist's Hermite polynomial of degree `n` at `x`; 0 for a negative degree."""

def hermite_polynomial_he(x: Any, n: Any) -> Tensor:
    """Probabilist's Hermite polynomial of degree `n` at `x`; 0 for a negative degree."""

def i0(x: Any) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""

def i0e(x: Any) -> Tensor:
    """`exp(-|x|) * i0(x)`."""

def i1(x: Any) -> Tensor:
    """Modified Bessel function of the first kind, order 1."""

def i1e(x: Any) -> Tensor:
    """`exp(-|x|) * i1(x)`."""

def laguerre_polynomial_l(x: Any, n: Any) -> Tensor:
    """Laguerre polynomial of degree `n` at `x`; 0 for a negative degree."""

def legendre_polynomial_p(x: Any, n: Any) -> Tensor:
    """Legendre polynomial of degree `n` at `x`; 0 for a negative degree."""

def log1p(x: Any) -> Tensor:
    """`log(1 + x)`, accurate near 0."""

def log_ndtr(x: Any) -> Tensor:
    """Logarithm of the normal distribution function."""

def log_softmax(x: Any, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Tensor:
    """Logarithm of softmax, accurate where the probability is tiny."""

def logit(x: Any, eps: float | None = ...) -> Tensor:
    """Inverse of sigmoid: `log(x / (1 - x))`, with `eps` of `x` limited to [eps, 1 - eps]."""

def logsumexp(x: Any, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
    """`log(sum(exp(x)))` over `axis` without overflow; -infinity of no elements."""

def modified_bessel_i0(x: Any) -> Tensor:
    """Modified Bessel function I of order 0."""

def modified_bessel_i1(x: Any) -> Tensor:
    """Modified Bessel function I of order 1."""

def modified_bessel_k0(x: Any) -> Tensor:
    """Modified Bessel function K of order 0."""

def modified_bessel_k1(x: Any) -> Tensor:
    """Modified Bessel function K of order 1."""

def multigammaln(x: Any, p: int) -> Tensor:
    """Logarithm of the multivariate gamma function of dimension `p`; `x` must be greater than (p - 1) / 2."""

def ndtr(x: Any) -> Tensor:
    """Normal distribution function: the area under the Gaussian density below `x`."""

def ndtri(x: Any) -> Tensor:
    """Normal quantile: where the normal distribution function is `x`."""

def polygamma(n: Any, x: Any) -> Tensor:
    """Derivative `n` of digamma at `x`. Raises ValueError for a negative `n`. Takes a tensor of any shape."""

def psi(x: Any) -> Tensor:
    """Logarithmic derivative of the gamma function; NaN at the negative integers."""

def round(x: Any, decimals: int = ...) -> Tensor:
    """`x` rounded to so many decimals, to tens and hundreds if negative; halves to even."""

def scaled_modified_bessel_k0(x: Any) -> Tensor:
    """`exp(x)` times the modified Bessel function K of order 0."""

def scaled_modified_bessel_k1(x: Any) -> Tensor:
    """`exp(x)` times the modified Bessel function K of order 1."""

def shifted_chebyshev_polynomial_t(x: Any, n: Any) -> Tensor:
    """Shifted Chebyshev polynomial of the first kind of degree `n` at `x`; 0 for a negative degree."""

def shifted_chebyshev_polynomial_u(x: Any, n: Any) -> Tensor:
    """Shifted Chebyshev polynomial of the second kind of degree `n` at `x`; 0 for a negative degree."""

def shifted_chebyshev_polynomial_v(x: Any, n: Any) -> Tensor:
    """Shifted Chebyshev polynomial of the third kind of degree `n` at `x`; 0 for a negative degree."""

def shifted_chebyshev_polynomial_w(x: Any, n: Any) -> Tensor:
    """Shifted Chebyshev polynomial of the fourth kind of degree `n` at `x`; 0 for a negative degree."""

def sinc(x: Any) -> Tensor:
    """Cardinal sine `sin(pi x) / (pi x)`, 1 at 0."""

def softmax(x: Any, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Tensor:
    """`exp(x)` divided by its sum along `axis`, without overflow."""

def spherical_bessel_j0(x: Any) -> Tensor:
    """Spherical Bessel function of order 0: `sin(x) / x`, 1 at 0, 0 at infinity."""

def xlog1py(x: Any, y: Any) -> Tensor:
    """`x * log(1 + y)`, and 0 where `x` is 0."""

def xlogy(x: Any, y: Any) -> Tensor:
    """`x * log(y)`, and 0 where `x` is 0."""

def zeta(x: Any, q: Any) -> Tensor:
    """Hurwitz zeta function: the sum of `(k + q) ** -x` over k >= 0; NaN for x < 1."""
