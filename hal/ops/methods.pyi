"""Generated from the op declarations by `make generate`; do not edit."""

from collections.abc import Callable
from typing import Any, Self

from polyhal.hal.ops.linear_algebra.results import GeqrfResult, SlogdetResult
from polyhal.hal.ops.results import AminmaxResult, FrexpResult, HistogramResult, SelectionResult

OPERATORS: dict[str, str]
COMPARISONS: dict[str, str]
UNARY: dict[str, str]

def attach(functions: dict[str, Callable[..., Any]], methods: dict[str, Callable[..., Any]]) -> None: ...

class Methods:
    __array_ufunc__: Any
    def __getitem__(self, index: Any) -> Self: ...
    def __hash__(self) -> int: ...
    def __add__(self, other: Any) -> Self: ...
    def __radd__(self, other: Any) -> Self: ...
    def __sub__(self, other: Any) -> Self: ...
    def __rsub__(self, other: Any) -> Self: ...
    def __mul__(self, other: Any) -> Self: ...
    def __rmul__(self, other: Any) -> Self: ...
    def __truediv__(self, other: Any) -> Self: ...
    def __rtruediv__(self, other: Any) -> Self: ...
    def __floordiv__(self, other: Any) -> Self: ...
    def __rfloordiv__(self, other: Any) -> Self: ...
    def __mod__(self, other: Any) -> Self: ...
    def __rmod__(self, other: Any) -> Self: ...
    def __pow__(self, other: Any) -> Self: ...
    def __rpow__(self, other: Any) -> Self: ...
    def __matmul__(self, other: Any) -> Self: ...
    def __rmatmul__(self, other: Any) -> Self: ...
    def __and__(self, other: Any) -> Self: ...
    def __rand__(self, other: Any) -> Self: ...
    def __or__(self, other: Any) -> Self: ...
    def __ror__(self, other: Any) -> Self: ...
    def __xor__(self, other: Any) -> Self: ...
    def __rxor__(self, other: Any) -> Self: ...
    def __lshift__(self, other: Any) -> Self: ...
    def __rlshift__(self, other: Any) -> Self: ...
    def __rshift__(self, other: Any) -> Self: ...
    def __rrshift__(self, other: Any) -> Self: ...
    def __lt__(self, other: Any) -> Self: ...
    def __le__(self, other: Any) -> Self: ...
    def __gt__(self, other: Any) -> Self: ...
    def __ge__(self, other: Any) -> Self: ...
    def __eq__(self, other: Any) -> Self: ...  # type: ignore[override]
    def __ne__(self, other: Any) -> Self: ...  # type: ignore[override]
    def __neg__(self) -> Self: ...
    def __pos__(self) -> Self: ...
    def __abs__(self) -> Self: ...
    def __invert__(self) -> Self: ...
    def abs(self) -> Self:
        """Absolute value."""
    def absolute(self) -> Self:
        """Absolute value."""
    def acos(self) -> Self:
        """Inverse cosine, in radians."""
    def acosh(self) -> Self:
        """Inverse hyperbolic cosine; NaN below 1."""
    def add(self, y: Any, *, alpha: float = ...) -> Self:
        """Sum `x + alpha * y`. The shapes broadcast."""
    def addbmm(self, batch1: Any, batch2: Any, *, beta: Any = ..., alpha: Any = ...) -> Self:
        """`beta * x + alpha * (batch1 @ batch2).sum(0)`. With `beta` 0, `x` is ignored."""
    def addcdiv(self, tensor1: Any, tensor2: Any, value: Any = ...) -> Self:
        """`x + value * tensor1 / tensor2`."""
    def addcmul(self, tensor1: Any, tensor2: Any, value: Any = ...) -> Self:
        """`x + value * tensor1 * tensor2`."""
    def addmm(self, mat1: Any, mat2: Any, *, beta: Any = ..., alpha: Any = ...) -> Self:
        """`beta * x + alpha * mat1 @ mat2` of matrices. With `beta` 0, `x` is ignored."""
    def addmv(self, mat: Any, vec: Any, *, beta: Any = ..., alpha: Any = ...) -> Self:
        """`beta * x + alpha * mat @ vec` of a matrix and a vector. With `beta` 0, `x` is ignored."""
    def addr(self, vec1: Any, vec2: Any, *, beta: Any = ..., alpha: Any = ...) -> Self:
        """`beta * x + alpha * outer(vec1, vec2)`. With `beta` 0, `x` is ignored."""
    def adjoint(self) -> Self:
        """The conjugate of the matrices (..., m, n), transposed."""
    def all(self, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Self:
        """True where every element is non-zero."""
    def allclose(self, y: Any, rtol: float = ..., atol: float = ..., equal_nan: bool = ...) -> Self:
        """Return whether all elements are close (see `isclose`), as a Python bool. Waits for the device."""
    def amax(self, dim: Any = ..., keepdim: bool = ...) -> Self:
        """Largest element over one or several axes, all by default; equal ones share the gradient. NaN if any is NaN."""
    def amin(self, dim: Any = ..., keepdim: bool = ...) -> Self:
        """Smallest element over one or several axes, all by default; equal ones share the gradient. NaN if any is NaN."""
    def aminmax(self, *, dim: int | None = ..., keepdim: bool = ...) -> AminmaxResult:
        """Smallest and largest element over `dim`, or of all."""
    def angle(self) -> Self:
        """The angle in the complex plane, from -pi to pi; that of a negative number is pi, and NaN stays NaN."""
    def any(self, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Self:
        """True where any element is non-zero."""
    def arccos(self) -> Self:
        """Inverse cosine, in radians."""
    def arccosh(self) -> Self:
        """Inverse hyperbolic cosine; NaN below 1."""
    def arcsin(self) -> Self:
        """Inverse sine, in radians."""
    def arcsinh(self) -> Self:
        """Inverse hyperbolic sine."""
    def arctan(self) -> Self:
        """Inverse tangent, in radians."""
    def arctan2(self, x: Any) -> Self:
        """Angle of the point (y, x), in radians."""
    def arctanh(self) -> Self:
        """Inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond."""
    def argmax(self, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Self:
        """Position of the first largest element over one axis or all; a NaN counts as largest."""
    def argmin(self, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Self:
        """Position of the first smallest element over one axis or all; a NaN counts as smallest."""
    def argsort(self, axis: int = ..., descending: bool = ..., stable: bool = ..., *, dim: Any = ...) -> Self:
        """Positions (int64) that sort `x` along `axis`, always stably: equal elements keep their order. NaN counts as largest."""
    def argwhere(self) -> Self:
        """Where `x` is not zero: int64 (hits, axes), in row-major order."""
    def asin(self) -> Self:
        """Inverse sine, in radians."""
    def asinh(self) -> Self:
        """Inverse hyperbolic sine."""
    def atan(self) -> Self:
        """Inverse tangent, in radians."""
    def atan2(self, x: Any) -> Self:
        """Angle of the point (y, x), in radians."""
    def atanh(self) -> Self:
        """Inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond."""
    def atleast_1d(self) -> Self:
        """The tensor, or each of several, with one axis if it has none. Returns a view."""
    def atleast_2d(self) -> Self:
        """The tensor, or each of several, with two axes at least: a vector becomes a row. Returns a view."""
    def atleast_3d(self) -> Self:
        """The tensor, or each of several, with three axes at least: (n,) becomes (1, n, 1) and (m, n) (m, n, 1)."""
    def avg_pool2d(
        self,
        kernel: Any,
        stride: Any = ...,
        padding: Any = ...,
        ceil_mode: bool = ...,
        count_include_pad: bool = ...,
        divisor: float | None = ...,
    ) -> Self:
        """Mean of each window; padding counts as zeros, or not at all without `count_include_pad`."""
    def baddbmm(self, batch1: Any, batch2: Any, *, beta: Any = ..., alpha: Any = ...) -> Self:
        """`beta * x + alpha * batch1 @ batch2` of batches of matrices. With `beta` 0, `x` is ignored."""
    def bincount(self, weights: Any = ..., minlength: int = ...) -> Self:
        """How often each number from 0 to the largest occurs in the vector `x` of integers, or the sum of its `weights`."""
    def bitwise_and(self, y: Any) -> Self:
        """Bits set in both."""
    def bitwise_invert(self) -> Self:
        """All bits flipped."""
    def bitwise_left_shift(self, y: Any) -> Self:
        """`x` times 2 to the power `y`, in bits."""
    def bitwise_not(self) -> Self:
        """All bits flipped."""
    def bitwise_or(self, y: Any) -> Self:
        """Bits set in either."""
    def bitwise_right_shift(self, y: Any) -> Self:
        """`x` shifted right by `y` bits; the sign is kept."""
    def bitwise_xor(self, y: Any) -> Self:
        """Bits set in exactly one."""
    def bmm(self, mat2: Any) -> Self:
        """The products of two batches of matrices, (b, n, m) and (b, m, p), without broadcasting."""
    def broadcast_to(self, shape: Any) -> Self:
        """The tensor stretched to `shape` under NumPy's rules. Returns a view."""
    def cast(self, dtype: Any) -> Self:
        """`x` in another dtype: floats truncate towards zero, integers wrap, anything non-zero is True."""
    def ceil(self) -> Self:
        """Smallest integer not below `x`."""
    def celu(self, alpha: Any = ...) -> Self:
        """`x` if positive, else `alpha * (exp(x / alpha) - 1)`. Source: Barron, arXiv:1704.07483."""
    def cholesky(self, upper: bool = ...) -> Self:
        """The lower triangular L with `x = L @ L.mH`, or the upper U with `x = U.mH @ U`, of symmetric or Hermitian matrices."""
    def cholesky_inverse(self, upper: bool = ...) -> Self:
        """The inverse of a symmetric matrix from its Cholesky factor."""
    def cholesky_solve(self, L: Any, upper: bool = ...) -> Self:
        """The solution X of `A @ X = x` from the Cholesky factor of `A`. Takes (..., m, n) and the factor (..., m, m)."""
    def chunk(self, chunks: int, axis: int = ..., *, dim: Any = ...) -> tuple[Self, ...]:
        """`x` cut into `chunks` parts along `axis`, the last possibly shorter. Raises ValueError unless there is at least one."""
    def clamp(self, min: Any = ..., max: Any = ...) -> Self:
        """`x` limited to [`min`, `max`]; either bound may be left out."""
    def clamp_max(self, max: Any) -> Self:
        """`x`, and `max` where `x` is above it. The shapes broadcast."""
    def clamp_min(self, min: Any) -> Self:
        """`x`, and `min` where `x` is below it. The shapes broadcast."""
    def clip(self, min: Any = ..., max: Any = ...) -> Self:
        """`x` limited to [`min`, `max`]; either bound may be left out."""
    def combinations(self, r: int = ..., with_replacement: bool = ...) -> Self:
        """All combinations of `r` elements of a vector, as rows, in the order of `itertools.combinations`."""
    def conj(self) -> Self:
        """The complex conjugate. Returns a view, or the tensor itself, where nothing has to be computed; else a copy."""
    def contiguous(self, *, memory_format: Any = ...) -> Self:
        """The tensor in row-major order, itself if it already is. `memory_format` is a no-op: strides belong to the device."""
    def conv2d(
        self,
        weight: Any,
        bias: Any = ...,
        stride: Any = ...,
        padding: Any = ...,
        dilation: Any = ...,
        groups: int = ...,
    ) -> Self:
        """Cross-correlation of x (N, C, H, W) with weight (K, C/groups, R, S), plus bias (K,)."""
    def copy(self) -> Self:
        """A new tensor with the same elements, in row-major order. Returns a copy."""
    def copysign(self, y: Any) -> Self:
        """The magnitude of `x` with the sign of `y`."""
    def corrcoef(self) -> Self:
        """Correlation coefficients, -1 to 1, of the variables in the rows of `x` (variables, observations)."""
    def cos(self) -> Self:
        """Cosine of `x` radians."""
    def cosh(self) -> Self:
        """Hyperbolic cosine."""
    def count_nonzero(self, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Self:
        """How many elements over `axis` are not 0 (int64)."""
    def cov(self, *, correction: float = ..., fweights: Any = ..., aweights: Any = ...) -> Self:
        """Covariance matrix of the variables in the rows of `x` (variables, observations); of one variable, its variance."""
    def cross(self, other: Any, dim: int | None = ...) -> Self:
        """The cross product along `dim`, by default the first axis of length 3, as in PyTorch."""
    def cummax(self, axis: int = ..., *, dim: Any = ...) -> SelectionResult:
        """Largest element up to each along `axis`, and its position (int64), the last of equal ones. NaN counts as largest."""
    def cummin(self, axis: int = ..., *, dim: Any = ...) -> SelectionResult:
        """Smallest element up to each along `axis`, and its position (int64), the last of equal ones. NaN counts as smallest."""
    def cumprod(self, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Self:
        """Product of the elements up to and including each along `axis`. Integers and bool multiply in 64 bits."""
    def cumsum(self, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Self:
        """Sum of the elements up to and including each along `axis`. Integers and bool sum in 64 bits."""
    def cumulative_trapezoid(self, x: Any = ..., *, dx: Any = ..., axis: int = ..., dim: Any = ...) -> Self:
        """Integrals up to each element but the first; see `trapezoid`."""
    def deg2rad(self) -> Self:
        """Degrees as radians. Takes a tensor of any shape; integers become float32."""
    def det(self) -> Self:
        """Determinants of square matrices (..., n, n). First and second derivatives exist for singular matrices too."""
    def diag(self, diagonal: int = ..., *, k: Any = ...) -> Self:
        """A square matrix with the vector `x` as its diagonal number `diagonal`, or that diagonal of the matrix `x`."""
    def diag_embed(self, offset: int = ..., dim1: int = ..., dim2: int = ...) -> Self:
        """Square matrices in the axes `dim1` and `dim2`, with the last axis of `x` as diagonal number `offset` and zeros elsewhere."""
    def diagflat(self, offset: int = ...) -> Self:
        """A square matrix whose diagonal number `offset` holds the elements of `x` in row-major order. Compare `torch.diagflat`."""
    def diagonal(self, offset: int = ..., dim1: int = ..., dim2: int = ...) -> Self:
        """Diagonal number `offset` of the matrices in two axes, as the last axis. Returns a view."""
    def diagonal_scatter(self, src: Any, offset: int = ..., dim1: int = ..., dim2: int = ...) -> Self:
        """`x` with diagonal number `offset` of the matrices in two axes replaced by `src`, shaped as `diagonal` returns it."""
    def diff(self, n: int = ..., axis: int = ..., prepend: Any = ..., append: Any = ..., *, dim: Any = ...) -> Self:
        """The `n`-th difference of neighbours along `axis`, with `prepend` and `append` joined on first. Returns a copy."""
    def digamma(self) -> Self:
        """Logarithmic derivative of the gamma function; NaN at the negative integers."""
    def dist(self, other: Any, p: float = ...) -> Self:
        """p-norm of `x - other`, which are broadcast."""
    def div(self, y: Any, *, rounding_mode: Any = ...) -> Self:
        """`x / y`; with `rounding_mode` "floor" or "trunc" rounded down or towards zero, and integers stay integers."""
    def divide(self, y: Any) -> Self:
        """Quotient `x / y`, floating point also for integers."""
    def dot(self, y: Any) -> Self:
        """The sum of the products of two vectors' elements."""
    def dsplit(self, indices_or_sections: Any) -> tuple[Self, ...]:
        """The tensor cut along its third axis; as `tensor_split`. Returns a view."""
    def elu(self, alpha: Any = ...) -> Self:
        """`x` if positive, else `alpha * (exp(x) - 1)`."""
    def embedding(self, index: Any) -> Self:
        """Rows of `weight` (R, W) by number: index (...) to (..., W)."""
    def eq(self, y: Any) -> Self:
        """True where `x == y`."""
    def equal(self, y: Any) -> Self:
        """True where `x == y`."""
    def erf(self) -> Self:
        """Error function."""
    def erfc(self) -> Self:
        """Complementary error function `1 - erf(x)`, accurate for large `x`."""
    def erfinv(self) -> Self:
        """Inverse of the error function; infinite at 1 and -1, NaN beyond."""
    def exp(self) -> Self:
        """e to the power `x`."""
    def exp2(self) -> Self:
        """2 to the power `x`."""
    def expand_as(self, other: Any) -> Self:
        """The tensor broadcast to the shape of another. Returns a view."""
    def expand_dims(self, axis: Any = ..., *, dim: Any = ...) -> Self:
        """The tensor with a new axis of length 1 at position `axis`, or at each of several positions, of the result."""
    def expm1(self) -> Self:
        """`exp(x) - 1`, accurate near 0."""
    def fix(self) -> Self:
        """`x` without its fraction."""
    def flatten(self, start_axis: int = ..., end_axis: int = ..., *, start_dim: Any = ..., end_dim: Any = ...) -> Self:
        """The tensor with axes `start_axis` to `end_axis` (inclusive) merged into one; itself if that is one axis already."""
    def flip(self, axis: Any = ..., *more: Any, dims: Any = ..., dim: Any = ...) -> Self:
        """The tensor with the elements of the given axes in reverse order, of all by default: `flip(x, (0, 1))`."""
    def fliplr(self) -> Self:
        """The tensor with the elements of its second axis in reverse order. Returns a copy."""
    def flipud(self) -> Self:
        """The tensor with the elements of its first axis in reverse order. Returns a copy."""
    def float_power(self, exponent: Any) -> Self:
        """`x` to the power `exponent` in float64. Raises UnsupportedDTypeError on a device without float64."""
    def floor(self) -> Self:
        """Largest integer not above `x`."""
    def floor_divide(self, y: Any) -> Self:
        """Largest integer not above `x / y`. For floats, the quotient is exact, so that it agrees with `remainder`."""
    def fmax(self, y: Any) -> Self:
        """The larger of `x` and `y`, or the one that is not NaN."""
    def fmin(self, y: Any) -> Self:
        """The smaller of `x` and `y`, or the one that is not NaN."""
    def fmod(self, y: Any) -> Self:
        """Remainder of `x / y` with the sign of `x`, as in C."""
    def frac(self) -> Self:
        """The fraction of `x`, with its sign."""
    def frexp(self) -> FrexpResult:
        """Mantissa in [0.5, 1) with the sign of `x`, and integer exponent: `x = mantissa * 2 ** exponent`."""
    def fused_linear(
        self, weight: Any, bias: Any = ..., residual: Any = ..., activation: str = ..., scale: float = ...
    ) -> Self:
        """`activation(scale * x @ weight.T + bias) + residual`: x (..., in), weight (out, in), bias (out,), residual (..., out)."""
    def gather(self, axis: int, index: Any, *, dim: Any = ...) -> Self:
        """`out[i, j] = x[index[i, j], j]` for `axis` 0: elements of `x` by number, where `index` may be shorter than `x`."""
    def gcd(self, y: Any) -> Self:
        """Greatest common divisor."""
    def ge(self, y: Any) -> Self:
        """True where `x >= y`."""
    def gelu(self, approximate: str = ...) -> Self:
        """Gaussian error linear unit, exact or by tanh (`approximate`). Source: Hendrycks and Gimpel, arXiv:1606.08415."""
    def geqrf(self) -> GeqrfResult:
        """R above and Householder vectors below the diagonal, and their scales tau; see `linalg.householder_product`."""
    def ger(self, vec2: Any) -> Self:
        """The products of each element of one vector with each of another: (n,) and (m,) to (n, m)."""
    def glu(self, axis: int = ..., *, dim: Any = ...) -> Self:
        """Gated linear unit: the first half along `axis` times the sigmoid of the second. Raises ValueError for an odd length."""
    def greater(self, y: Any) -> Self:
        """True where `x > y`."""
    def greater_equal(self, y: Any) -> Self:
        """True where `x >= y`."""
    def gt(self, y: Any) -> Self:
        """True where `x > y`."""
    def hardshrink(self, lambd: Any = ...) -> Self:
        """`x` outside [-`lambd`, `lambd`], else 0."""
    def hardsigmoid(self) -> Self:
        """`(x + 3) / 6` limited to [0, 1]."""
    def hardswish(self) -> Self:
        """`x * hardsigmoid(x)`. Source: Howard et al., arXiv:1905.02244."""
    def hardtanh(self, min_val: Any = ..., max_val: Any = ...) -> Self:
        """`x` limited to [`min_val`, `max_val`]; the gradient at the bounds is 0."""
    def heaviside(self, values: Any) -> Self:
        """1 where `x` is positive, `values` where it is 0, else 0."""
    def histc(self, bins: int = ..., min: float = ..., max: float = ...) -> Self:
        """How many elements of `x` are in each of `bins` equal bins from `min` to `max`, in the dtype of `x`."""
    def histogram(
        self, bins: Any = ..., *, range: Any = ..., weight: Any = ..., density: bool = ...
    ) -> HistogramResult:
        """Counts of elements by bin, and the edges of the bins. Returns a copy."""
    def hsplit(self, indices_or_sections: Any) -> tuple[Self, ...]:
        """The tensor cut along its second axis, a vector along its only one; as `tensor_split`. Returns a view."""
    def hypot(self, y: Any) -> Self:
        """`sqrt(x * x + y * y)` without overflow."""
    def i0(self) -> Self:
        """Modified Bessel function of the first kind, order 0."""
    def igamma(self, x: Any) -> Self:
        """Regularized lower incomplete gamma function P(a, x)."""
    def igammac(self, x: Any) -> Self:
        """Regularized upper incomplete gamma function Q(a, x)."""
    def index_add(self, axis: int, index: Any, source: Any, *, alpha: float = ..., dim: Any = ...) -> Self:
        """`x` with `alpha` times each slice of `source` along `axis` added to the slice that the vector `index` names."""
    def index_copy(self, axis: int, index: Any, source: Any, *, dim: Any = ...) -> Self:
        """`x` with the slices along `axis` that the vector `index` names replaced by those of `source`; the last one wins."""
    def index_fill(self, axis: int, index: Any, value: Any, *, dim: Any = ...) -> Self:
        """`x` with `value`, a number or a tensor without axes, in the slices along `axis` that the vector `index` names."""
    def index_put(self, indices: Any, values: Any, accumulate: bool = ...) -> Self:
        """`x` with `x[indices] = values`, where the last of several writers wins, or with the sum of all added if they accumulate."""
    def index_reduce(
        self, axis: int, index: Any, source: Any, reduce: str, *, include_self: bool = ..., dim: Any = ...
    ) -> Self:
        """`x` with the slices along `axis` that `index` names combined with those of `source`, by prod, mean, amax or amin."""
    def index_select(self, axis: int, index: Any, *, dim: Any = ...) -> Self:
        """The slices of `x` along `axis` that the vector `index` names. Compare `torch.index_select`. Returns a copy."""
    def inner(self, other: Any) -> Self:
        """The sums of products over the last axes: (..., k) and (---, k) to (..., ---). Scalars multiply."""
    def inverse(self) -> Self:
        """Inverses of square matrices (..., n, n). Raises LinAlgError for singular ones."""
    def isclose(self, y: Any, rtol: float = ..., atol: float = ..., equal_nan: bool = ...) -> Self:
        """True where `|x - y| <= atol + rtol * |y|`, where both are the same infinity and, with `equal_nan`, both NaN."""
    def isfinite(self) -> Self:
        """True where `x` is neither infinite nor NaN."""
    def isinf(self) -> Self:
        """True where `x` is infinite."""
    def isnan(self) -> Self:
        """True where `x` is NaN."""
    def isneginf(self) -> Self:
        """True where `x` is negative infinity."""
    def isposinf(self) -> Self:
        """True where `x` is positive infinity."""
    def isreal(self) -> Self:
        """True where the imaginary part is 0. Takes a tensor of any shape; the result is bool."""
    def istft(
        self,
        n_fft: int,
        hop_length: int | None = ...,
        win_length: int | None = ...,
        window: Any = ...,
        center: bool = ...,
        normalized: bool = ...,
        onesided: Any = ...,
        length: int | None = ...,
        return_complex: bool = ...,
    ) -> Self:
        """The signals (..., n) of least squared error whose short-time spectra are `x` (..., frequencies, windows)."""
    def kron(self, other: Any) -> Self:
        """The Kronecker product: the tensor of blocks `x[i] * other`. Missing leading axes have length 1."""
    def kthvalue(self, k: int, dim: int = ..., keepdim: bool = ...) -> SelectionResult:
        """The `k`-th smallest element along `dim`, counted from 1, and its position (int64). NaN counts as the largest."""
    def lcm(self, y: Any) -> Self:
        """Least common multiple; it wraps where the dtype does not hold it."""
    def ldexp(self, other: Any) -> Self:
        """`x` times 2 to the power `other`, in floating point."""
    def le(self, y: Any) -> Self:
        """True where `x <= y`."""
    def leaky_relu(self, negative_slope: Any = ...) -> Self:
        """`x` if positive, else `negative_slope * x`."""
    def lerp(self, end: Any, weight: Any) -> Self:
        """`x + weight * (end - x)`, exact at both ends."""
    def less(self, y: Any) -> Self:
        """True where `x < y`."""
    def less_equal(self, y: Any) -> Self:
        """True where `x <= y`."""
    def lgamma(self) -> Self:
        """Logarithm of the absolute value of the gamma function; infinite at 0 and the negative integers."""
    def linear(self, weight: Any, bias: Any = ...) -> Self:
        """`x @ weight.T + bias`: x (..., in), weight (out, in), bias (out,)."""
    def log(self) -> Self:
        """Natural logarithm."""
    def log10(self) -> Self:
        """Logarithm to base 10."""
    def log1p(self) -> Self:
        """`log(1 + x)`, accurate near 0."""
    def log2(self) -> Self:
        """Logarithm to base 2."""
    def log_softmax(self, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Self:
        """Logarithm of softmax, accurate where the probability is tiny."""
    def logaddexp(self, y: Any) -> Self:
        """`log(exp(x) + exp(y))` without overflow."""
    def logaddexp2(self, y: Any) -> Self:
        """`log2(2 ** x + 2 ** y)` without overflow."""
    def logcumsumexp(self, axis: int = ..., *, dim: Any = ...) -> Self:
        """`log(cumsum(exp(x)))` along `axis` without overflow."""
    def logdet(self) -> Self:
        """Logarithms of determinants (..., n, n): -infinity where they are 0, NaN where they are negative."""
    def logical_and(self, y: Any) -> Self:
        """True where both are non-zero."""
    def logical_not(self) -> Self:
        """True where `x` is zero."""
    def logical_or(self, y: Any) -> Self:
        """True where either is non-zero."""
    def logical_xor(self, y: Any) -> Self:
        """True where exactly one is non-zero."""
    def logit(self, eps: float | None = ...) -> Self:
        """Inverse of sigmoid: `log(x / (1 - x))`, with `eps` of `x` limited to [eps, 1 - eps]."""
    def logsigmoid(self) -> Self:
        """`log(sigmoid(x))` without overflow."""
    def logsumexp(self, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Self:
        """`log(sum(exp(x)))` over `axis` without overflow; -infinity of no elements."""
    def lt(self, y: Any) -> Self:
        """True where `x < y`."""
    def masked_fill(self, mask: Any, value: Any) -> Self:
        """`x` with `value`, a number or a tensor without axes, where `mask` is true; `mask` is broadcast."""
    def masked_scatter(self, mask: Any, source: Any) -> Self:
        """`x` with the elements where `mask` is true replaced by the first ones of `source`, in row-major order."""
    def masked_select(self, mask: Any) -> Self:
        """The elements of `x` where `mask` is true, in row-major order; both are broadcast. Compare `torch.masked_select`."""
    def matmul(self, y: Any, *, out_dtype: Any = ...) -> Self:
        """Matrix product as NumPy's: 1-D inputs are vectors, further axes broadcast: (..., M, K) @ (..., K, N)."""
    def matrix_exp(self) -> Self:
        """The exponential of square matrices (..., n, n), by scaling and squaring (Higham 2005); of halves, in float32."""
    def matrix_power(self, n: int) -> Self:
        """Powers of square matrices (..., m, m); negative ones of the inverse. Raises LinAlgError for singular matrices then."""
    def matrix_transpose(self) -> Self:
        """The matrices (..., m, n) transposed. Raises ShapeError for fewer than two axes. Returns a view."""
    def max(self, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Self:
        """Largest element over `axis`; NaN if any is NaN."""
    def max_pool2d(
        self, kernel: Any, stride: Any = ..., padding: Any = ..., dilation: Any = ..., ceil_mode: bool = ...
    ) -> Self:
        """Largest element of each window; NaN if any is NaN. Padding counts as -infinity."""
    def maximum(self, y: Any) -> Self:
        """The larger of `x` and `y`; NaN if either is NaN."""
    def mean(
        self, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
    ) -> Self:
        """Arithmetic mean over `axis`; NaN of no elements."""
    def median(self, dim: int | None = ..., keepdim: bool = ..., *, axis: Any = ..., keepdims: bool = ...) -> Self:
        """The median of all elements or, given `dim`, medians along it and their positions (int64)."""
    def min(self, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Self:
        """Smallest element over `axis`; NaN if any is NaN."""
    def minimum(self, y: Any) -> Self:
        """The smaller of `x` and `y`; NaN if either is NaN."""
    def mish(self) -> Self:
        """`x * tanh(softplus(x))`. Source: Misra, arXiv:1908.08681."""
    def mm(self, mat2: Any) -> Self:
        """The product of two matrices, without broadcasting."""
    def mode(self, dim: int = ..., keepdim: bool = ...) -> SelectionResult:
        """The most frequent element along `dim`, the smallest of several, and its last position (int64)."""
    def moveaxis(self, source: Any, destination: Any) -> Self:
        """The tensor with axis `source`, or each of several, moved to position `destination`. Returns a view."""
    def movedim(self, source: Any, destination: Any) -> Self:
        """The tensor with axis `source`, or each of several, moved to position `destination`. Returns a view."""
    def msort(self) -> Self:
        """The elements along the first axis in ascending order. NaN counts as the largest."""
    def mul(self, y: Any) -> Self:
        """Product `x * y`."""
    def multiply(self, y: Any) -> Self:
        """Product `x * y`."""
    def mv(self, vec: Any) -> Self:
        """The product of a matrix (n, m) and a vector (m,)."""
    def mvlgamma(self, p: int) -> Self:
        """Logarithm of the multivariate gamma function of dimension `p`; `x` must be greater than (p - 1) / 2."""
    def nan_to_num(self, nan: float = ..., posinf: float | None = ..., neginf: float | None = ...) -> Self:
        """`x` with NaN and infinities replaced, infinities by the largest and the lowest finite number unless given."""
    def nanmean(
        self, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
    ) -> Self:
        """Arithmetic mean over `axis` of the elements that are not NaN; NaN if there is none."""
    def nanmedian(self, dim: int | None = ..., keepdim: bool = ...) -> Self:
        """The median of the elements that are not NaN; see `median`."""
    def nanquantile(self, q: Any, dim: int | None = ..., keepdim: bool = ..., *, interpolation: str = ...) -> Self:
        """Quantiles of the elements that are not NaN; see `quantile`."""
    def nansum(
        self, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
    ) -> Self:
        """Sum over `axis` of the elements that are not NaN."""
    def narrow(self, axis: int, start: int, length: int, *, dim: Any = ...) -> Self:
        """`length` elements along `axis` from `start`, which may count from the end. Raises ShapeError. Returns a view."""
    def ne(self, y: Any) -> Self:
        """True where `x != y`."""
    def neg(self) -> Self:
        """`-x`."""
    def negative(self) -> Self:
        """`-x`."""
    def nextafter(self, y: Any) -> Self:
        """The next floating-point number after `x` in the direction of `y`."""
    def nonzero(self, *, as_tuple: bool = ...) -> Self:
        """Where `x` is not zero: one int64 vector per axis, in row-major order; with `as_tuple=False` the columns of `argwhere`."""
    def nonzero_static(self, *, size: int, fill_value: int = ...) -> Self:
        """The first `size` rows of `argwhere`, and `fill_value` in the rows beyond the last hit: int64 (size, axes)."""
    def norm(self, p: Any = ..., dim: Any = ..., keepdim: bool = ..., dtype: Any = ...) -> Self:
        """p-norm over `dim`, all axes by default; "fro" is the 2-norm, "nuc" the nuclear norm of matrices in two axes."""
    def not_equal(self, y: Any) -> Self:
        """True where `x != y`."""
    def orgqr(self, tau: Any) -> Self:
        """The first columns of a product of Householder reflections, as `linalg.householder_product`."""
    def ormqr(self, tau: Any, other: Any, left: bool = ..., transpose: bool = ...) -> Self:
        """The product of the square Q of Householder reflections `x` and `tau` with `other`, from the left or the right."""
    def outer(self, vec2: Any) -> Self:
        """The products of each element of one vector with each of another: (n,) and (m,) to (n, m)."""
    def pad(self, widths: Any, value: float = ...) -> Self:
        """`x` with `widths[i] = (before, after)` elements of `value` added on axis i. Returns a copy."""
    def permute(self, axes: Any = ..., *, dims: Any = ...) -> Self:
        """The tensor with axis `axes[i]` at position i. Returns a view."""
    def permute_dims(self, axes: Any, *, dims: Any = ...) -> Self:
        """The tensor with axis `axes[i]` at position i. Returns a view."""
    def pinverse(self, rcond: float = ...) -> Self:
        """Pseudo-inverses, where singular values up to `rcond` times the largest count as 0."""
    def polygamma(self, x: Any) -> Self:
        """Derivative `n` of digamma at `x`. Raises ValueError for a negative `n`. Takes a tensor of any shape."""
    def positive(self) -> Self:
        """`x` itself, a tensor of any shape. Returns a view."""
    def pow(self, y: Any) -> Self:
        """`x` to the power `y`."""
    def prelu(self, weight: Any) -> Self:
        """`x` if positive, else `weight * x`; `weight` has one element, or one per channel (axis 1). Raises ValueError otherwise."""
    def prod(
        self, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
    ) -> Self:
        """Product over `axis`."""
    def put(self, index: Any, source: Any, accumulate: bool = ...) -> Self:
        """`x` with the elements that `index` names in row-major order replaced by those of `source`, or added to them."""
    def quantile(self, q: Any, dim: int | None = ..., keepdim: bool = ..., *, interpolation: str = ...) -> Self:
        """Quantiles `q` (a number or a vector, 0 to 1) of floating-point `x` along `dim`, or of all elements."""
    def rad2deg(self) -> Self:
        """Radians as degrees. Takes a tensor of any shape; integers become float32."""
    def ravel(self) -> Self:
        """The elements in row-major order along one axis."""
    def reciprocal(self) -> Self:
        """`1 / x`."""
    def relu(self) -> Self:
        """`max(x, 0)`."""
    def relu6(self) -> Self:
        """`x` limited to [0, 6]. Source: Howard et al., arXiv:1704.04861."""
    def remainder(self, y: Any) -> Self:
        """Remainder of `x / y` with the sign of `y`, as Python's %."""
    def renorm(self, p: float, dim: int, maxnorm: float) -> Self:
        """`x` with each slice along `dim` whose p-norm is above `maxnorm` scaled down to it."""
    def repeat_interleave(
        self, repeats: Any = ..., axis: int | None = ..., *, output_size: int | None = ..., dim: Any = ...
    ) -> Self:
        """Each element `repeats` times in a row along an axis; without one, the elements in row-major order."""
    def reshape(self, shape: Any, *, copy: Any = ...) -> Self:
        """The elements in row-major order in another shape, where -1 stands for one length. A view if the strides allow it."""
    def reshape_as(self, other: Any) -> Self:
        """The tensor reshaped to the shape of another."""
    def roll(self, shift: Any, axis: Any = ..., *, dims: Any = ..., shifts: Any = ..., dim: Any = ...) -> Self:
        """The tensor with its elements moved along axes by `shift`, those beyond the end to the front; without axes, in a row."""
    def rot90(self, k: int = ..., axes: Any = ..., *, dims: Any = ...) -> Self:
        """The tensor turned by 90 degrees `k` times, from the first of two axes towards the second. Returns a copy."""
    def round(self, decimals: int = ...) -> Self:
        """`x` rounded to so many decimals, to tens and hundreds if negative; halves to even."""
    def rsqrt(self) -> Self:
        """`1 / sqrt(x)`."""
    def rsub(self, y: Any, *, alpha: float = ...) -> Self:
        """`y - alpha * x`. The shapes broadcast."""
    def scatter(
        self, axis: int, index: Any, src: Any = ..., *, value: Any = ..., reduce: Any = ..., dim: Any = ...
    ) -> Self:
        """`x` with `out[index[i, j], j] = src[i, j]` for axis 0; of several writers the last in row-major order wins."""
    def scatter_add(self, axis: int, index: Any, src: Any, *, dim: Any = ...) -> Self:
        """`x` with `src[i, j]` added to `out[index[i, j], j]` for axis 0. Compare `torch.scatter_add`. Raises ShapeError."""
    def scatter_reduce(
        self, axis: int, index: Any, src: Any, reduce: str, *, include_self: bool = ..., dim: Any = ...
    ) -> Self:
        """`x` with `out[index[i, j], j]` combined with all its `src[i, j]` for axis 0, by sum, mean, prod, amax or amin."""
    def select(self, axis: int, index: int, *, dim: Any = ...) -> Self:
        """The slice number `index` along `axis`, without that axis. Raises IndexError. Returns a view."""
    def select_scatter(self, src: Any, axis: int, index: int, *, dim: Any = ...) -> Self:
        """`x` with slice number `index` along `axis` replaced by `src`. Compare `torch.select_scatter`."""
    def selu(self) -> Self:
        """Scaled exponential linear unit, whose constants keep mean 0 and variance 1. Source: Klambauer et al., arXiv:1706.02515."""
    def sgn(self) -> Self:
        """-1, 0 or 1 by the sign of `x`; NaN stays NaN, and bool stays bool."""
    def sigmoid(self) -> Self:
        """Logistic function `1 / (1 + exp(-x))`."""
    def sign(self) -> Self:
        """-1, 0 or 1 by the sign of `x`; NaN stays NaN, and bool stays bool."""
    def signbit(self) -> Self:
        """True where `x` is negative or -0; of a NaN, no promise."""
    def silu(self) -> Self:
        """`x * sigmoid(x)`, also called swish."""
    def sin(self) -> Self:
        """Sine of `x` radians."""
    def sinc(self) -> Self:
        """Cardinal sine `sin(pi x) / (pi x)`, 1 at 0."""
    def sinh(self) -> Self:
        """Hyperbolic sine."""
    def slice_scatter(
        self,
        src: Any,
        axis: int = ...,
        start: int | None = ...,
        end: int | None = ...,
        step: int = ...,
        *,
        dim: Any = ...,
    ) -> Self:
        """`x` with the elements `start:end:step` along `axis` replaced by `src`. Compare `torch.slice_scatter`."""
    def slogdet(self) -> SlogdetResult:
        """Sign or phase, and logarithm of the absolute value, of determinants (..., n, n); 0 and -infinity of singular ones."""
    def softmax(self, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Self:
        """`exp(x)` divided by its sum along `axis`, without overflow."""
    def softplus(self) -> Self:
        """`log(1 + exp(x))` without overflow."""
    def softshrink(self, lambd: Any = ...) -> Self:
        """`x` moved towards 0 by `lambd`; 0 within [-`lambd`, `lambd`]."""
    def softsign(self) -> Self:
        """`x / (1 + |x|)`."""
    def sort(self, axis: int = ..., descending: bool = ..., stable: bool = ..., *, dim: Any = ...) -> Self:
        """The elements along `axis` in ascending (or `descending`) order, always stably. NaN counts as the largest."""
    def split(
        self,
        sizes: Any = ...,
        axis: int = ...,
        *,
        split_size: Any = ...,
        split_size_or_sections: Any = ...,
        dim: Any = ...,
    ) -> tuple[Self, ...]:
        """Consecutive parts along `axis`: of `sizes` elements each (the last may be shorter), or of the sizes listed."""
    def split_with_sizes(self, split_sizes: Any, axis: int = ..., *, dim: Any = ...) -> tuple[Self, ...]:
        """Consecutive parts of the sizes listed along an axis. Returns a view."""
    def sqrt(self) -> Self:
        """Square root."""
    def square(self) -> Self:
        """`x * x`."""
    def squeeze(self, axis: Any = ..., *, dim: Any = ...) -> Self:
        """The tensor without the given axes of length 1, by default all of them. Returns a view."""
    def std(
        self,
        axis: Any = ...,
        unbiased: Any = ...,
        keepdims: bool = ...,
        *,
        correction: float | None = ...,
        dim: Any = ...,
        keepdim: Any = ...,
    ) -> Self:
        """Standard deviation over `axis`, from the sum of squares divided by n - `correction`, which is 0 by default."""
    def stft(
        self,
        n_fft: int,
        hop_length: int | None = ...,
        win_length: int | None = ...,
        window: Any = ...,
        center: bool = ...,
        pad_mode: str = ...,
        normalized: bool = ...,
        onesided: Any = ...,
        return_complex: Any = ...,
    ) -> Self:
        """Spectra (..., frequencies, windows) of windows of `n_fft` samples, `hop_length` (n_fft // 4) apart, of signals (..., n)."""
    def sub(self, y: Any, *, alpha: float = ...) -> Self:
        """`x - alpha * y`. The shapes broadcast."""
    def subtract(self, y: Any) -> Self:
        """Difference `x - y`."""
    def sum(
        self, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
    ) -> Self:
        """Sum over `axis` (all axes by default). Integers and bool sum in 64 bits."""
    def sum_to_size(self, *size: Any) -> Self:
        """`x` summed over the axes along which `size` would be broadcast to it. Raises ValueError where it would not."""
    def swapaxes(self, axis0: int, axis1: int, *, dim0: Any = ..., dim1: Any = ...) -> Self:
        """The tensor with two axes exchanged. Returns a view."""
    def swapdims(self, axis0: int, axis1: int, *, dim0: Any = ..., dim1: Any = ...) -> Self:
        """The tensor with two axes exchanged. Returns a view."""
    def t(self) -> Self:
        """The transpose of a matrix; a vector or a number as it is. Raises ValueError for more than two axes."""
    def take(self, index: Any, axis: int | None = ..., *, dim: Any = ...) -> Self:
        """The slices of `x` along `axis` that the integer tensor `index` names; its axes replace `axis`. Negative ones wrap."""
    def take_along_axis(self, index: Any, axis: int = ..., *, dim: Any = ...) -> Self:
        """Elements of `x` along `axis` by number. All other axes of `x` and `index` are broadcast; negative numbers wrap."""
    def take_along_dim(self, indices: Any, axis: int | None = ..., *, dim: Any = ...) -> Self:
        """`take_along_axis`; without an axis, the elements of `x` by number in row-major order."""
    def tan(self) -> Self:
        """Tangent of `x` radians."""
    def tanh(self) -> Self:
        """Hyperbolic tangent."""
    def tanhshrink(self) -> Self:
        """`x - tanh(x)`."""
    def tensor_split(self, indices_or_sections: Any, axis: int = ..., *, dim: Any = ...) -> tuple[Self, ...]:
        """The tensor cut into a number of nearly equal parts along an axis, or before each of several positions."""
    def tensordot(self, y: Any, axes: Any = ..., *, dims: Any = ...) -> Self:
        """The sums of products over pairs of axes."""
    def threshold(self, threshold: Any, value: Any) -> Self:
        """`x` where it is greater than `threshold`, else `value`."""
    def tile(self, dims: Any) -> Self:
        """The tensor repeated `dims[i]` times along axis i, counted from the last axis if `dims` is shorter."""
    def topk(
        self, k: int, axis: int = ..., largest: bool = ..., sorted: bool = ..., *, dim: Any = ...
    ) -> SelectionResult:
        """The `k` largest (or smallest) elements along `axis` and their positions (int64), always in order."""
    def trace(self, offset: int = ..., *, dtype: Any = ...) -> Self:
        """The sum of diagonal number `offset` of the matrices in the last two axes. Integers sum in 64 bits, or all in `dtype`."""
    def transpose(self, axis0: int = ..., axis1: int = ..., *, dim0: Any = ..., dim1: Any = ...) -> Self:
        """The tensor with two axes exchanged, the last two by default. Returns a view."""
    def trapezoid(self, x: Any = ..., *, dx: Any = ..., axis: int = ..., dim: Any = ...) -> Self:
        """Integral of `y` along `axis` by the trapezoidal rule, over coordinates `x` or steps of `dx` (1 by default)."""
    def trapz(self, x: Any = ..., *, dx: Any = ..., axis: int = ..., dim: Any = ...) -> Self:
        """Integral of `y` along `axis` by the trapezoidal rule, over coordinates `x` or steps of `dx` (1 by default)."""
    def tril(self, diagonal: int = ..., *, k: Any = ...) -> Self:
        """The elements on and below diagonal number `diagonal` of the last two axes; zeros above."""
    def triu(self, diagonal: int = ..., *, k: Any = ...) -> Self:
        """The elements on and above diagonal number `diagonal` of the last two axes; zeros below."""
    def true_divide(self, y: Any) -> Self:
        """Quotient `x / y`, floating point also for integers."""
    def trunc(self) -> Self:
        """`x` without its fraction."""
    def truncating_divide(self, y: Any) -> Self:
        """Integer quotient rounded towards zero, as in C."""
    def unbind(self, axis: int = ..., *, dim: Any = ...) -> tuple[Self, ...]:
        """The slices along an axis, without it. Returns a view."""
    def unflatten(self, axis: int, sizes: Any, *, dim: Any = ...) -> Self:
        """The tensor with one axis made several of lengths `sizes`, where one may be -1. Returns a view."""
    def unique(
        self, sorted: bool = ..., return_inverse: bool = ..., return_counts: bool = ..., dim: int | None = ...
    ) -> Self:
        """The distinct elements of `x`, or slices along `dim`, always sorted. Each NaN counts as another."""
    def unique_consecutive(self, return_inverse: bool = ..., return_counts: bool = ..., dim: int | None = ...) -> Self:
        """`x`, flat or along `dim`, with one of each run of equal elements or slices; see `unique` for the other results."""
    def unravel_index(self, shape: Any) -> tuple[Self, ...]:
        """The numbers (int64) along each axis of `shape` of elements at row-major positions. Compare `torch.unravel_index`."""
    def unsqueeze(self, axis: int, *, dim: Any = ...) -> Self:
        """The tensor with a new axis of length 1 at position `axis`. Returns a view."""
    def unstack(self, axis: int = ..., *, dim: Any = ...) -> tuple[Self, ...]:
        """The slices along an axis, without it. Returns a view."""
    def vander(self, N: int | None = ..., increasing: bool = ...) -> Self:
        """The matrix whose columns are powers of a vector, from the highest, N - 1, to 0 unless `increasing`."""
    def var(
        self,
        axis: Any = ...,
        unbiased: Any = ...,
        keepdims: bool = ...,
        *,
        correction: float | None = ...,
        dim: Any = ...,
        keepdim: Any = ...,
    ) -> Self:
        """Variance over `axis`, divided by n - `correction`, which is 0 by default."""
    def vdot(self, y: Any) -> Self:
        """The sum of the products of two vectors' elements; the first vector is conjugated."""
    def vecdot(self, y: Any, axis: int = ..., *, dim: Any = ...) -> Self:
        """The sum along `axis` of the products of `x`, conjugated where it is complex, and `y`; the other axes broadcast."""
    def view_as(self, other: Any) -> Self:
        """The tensor reshaped to the shape of another."""
    def vsplit(self, indices_or_sections: Any) -> tuple[Self, ...]:
        """The tensor cut along its first axis; as `tensor_split`. Returns a view."""
    def xlogy(self, y: Any) -> Self:
        """`x * log(y)`, and 0 where `x` is 0."""
