"""Generated from the op declarations by `make generate`; do not edit."""

from typing import Any

from polyhal.hal.ops.linear_algebra.results import GeqrfResult, LUResult, SlogdetResult
from polyhal.hal.ops.reductions.distinct import UniqueAll, UniqueCounts, UniqueInverse
from polyhal.hal.ops.results import AminmaxResult, FrexpResult, HistogramResult, SelectionResult
from polyhal.tensor import Tensor

def abs(x: Any) -> Tensor:
    """Absolute value."""

def absolute(x: Any) -> Tensor:
    """Absolute value."""

def acos(x: Any) -> Tensor:
    """Inverse cosine, in radians."""

def acosh(x: Any) -> Tensor:
    """Inverse hyperbolic cosine; NaN below 1."""

def add(x: Any, y: Any, *, alpha: float = ...) -> Tensor:
    """Sum `x + alpha * y`. The shapes broadcast."""

def addbmm(x: Any, batch1: Any, batch2: Any, *, beta: Any = ..., alpha: Any = ...) -> Tensor:
    """`beta * x + alpha * (batch1 @ batch2).sum(0)`. With `beta` 0, `x` is ignored."""

def addcdiv(x: Any, tensor1: Any, tensor2: Any, value: Any = ...) -> Tensor:
    """`x + value * tensor1 / tensor2`."""

def addcmul(x: Any, tensor1: Any, tensor2: Any, value: Any = ...) -> Tensor:
    """`x + value * tensor1 * tensor2`."""

def addmm(x: Any, mat1: Any, mat2: Any, *, beta: Any = ..., alpha: Any = ...) -> Tensor:
    """`beta * x + alpha * mat1 @ mat2` of matrices. With `beta` 0, `x` is ignored."""

def addmv(x: Any, mat: Any, vec: Any, *, beta: Any = ..., alpha: Any = ...) -> Tensor:
    """`beta * x + alpha * mat @ vec` of a matrix and a vector. With `beta` 0, `x` is ignored."""

def addr(x: Any, vec1: Any, vec2: Any, *, beta: Any = ..., alpha: Any = ...) -> Tensor:
    """`beta * x + alpha * outer(vec1, vec2)`. With `beta` 0, `x` is ignored."""

def adjoint(x: Any) -> Tensor:
    """The conjugate of the matrices (..., m, n), transposed."""

def all(x: Any, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
    """True where every element is non-zero."""

def allclose(x: Any, y: Any, rtol: float = ..., atol: float = ..., equal_nan: bool = ...) -> Tensor:
    """Return whether all elements are close (see `isclose`), as a Python bool. Waits for the device."""

def amax(x: Any, dim: Any = ..., keepdim: bool = ...) -> Tensor:
    """Largest element over one or several axes, all by default; equal ones share the gradient. NaN if any is NaN."""

def amin(x: Any, dim: Any = ..., keepdim: bool = ...) -> Tensor:
    """Smallest element over one or several axes, all by default; equal ones share the gradient. NaN if any is NaN."""

def aminmax(x: Any, *, dim: int | None = ..., keepdim: bool = ...) -> AminmaxResult:
    """Smallest and largest element over `dim`, or of all."""

def angle(x: Any) -> Tensor:
    """The angle in the complex plane, from -pi to pi; that of a negative number is pi, and NaN stays NaN."""

def any(x: Any, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
    """True where any element is non-zero."""

def arange(start: float, stop: float, step: float = ..., dtype: Any = ..., device: Any = ...) -> Tensor:
    """Evenly spaced numbers from `start` up to, not including, `stop`."""

def arccos(x: Any) -> Tensor:
    """Inverse cosine, in radians."""

def arccosh(x: Any) -> Tensor:
    """Inverse hyperbolic cosine; NaN below 1."""

def arcsin(x: Any) -> Tensor:
    """Inverse sine, in radians."""

def arcsinh(x: Any) -> Tensor:
    """Inverse hyperbolic sine."""

def arctan(x: Any) -> Tensor:
    """Inverse tangent, in radians."""

def arctan2(y: Any, x: Any) -> Tensor:
    """Angle of the point (y, x), in radians."""

def arctanh(x: Any) -> Tensor:
    """Inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond."""

def argmax(x: Any, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
    """Position of the first largest element over one axis or all; a NaN counts as largest."""

def argmin(x: Any, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
    """Position of the first smallest element over one axis or all; a NaN counts as smallest."""

def argsort(x: Any, axis: int = ..., descending: bool = ..., stable: bool = ..., *, dim: Any = ...) -> Tensor:
    """Positions (int64) that sort `x` along `axis`, always stably: equal elements keep their order. NaN counts as largest."""

def argwhere(x: Any) -> Tensor:
    """Where `x` is not zero: int64 (hits, axes), in row-major order."""

def asin(x: Any) -> Tensor:
    """Inverse sine, in radians."""

def asinh(x: Any) -> Tensor:
    """Inverse hyperbolic sine."""

def atan(x: Any) -> Tensor:
    """Inverse tangent, in radians."""

def atan2(y: Any, x: Any) -> Tensor:
    """Angle of the point (y, x), in radians."""

def atanh(x: Any) -> Tensor:
    """Inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond."""

def atleast_1d(*tensors: Any) -> Tensor:
    """The tensor, or each of several, with one axis if it has none. Returns a view."""

def atleast_2d(*tensors: Any) -> Tensor:
    """The tensor, or each of several, with two axes at least: a vector becomes a row. Returns a view."""

def atleast_3d(*tensors: Any) -> Tensor:
    """The tensor, or each of several, with three axes at least: (n,) becomes (1, n, 1) and (m, n) (m, n, 1)."""

def avg_pool2d(
    x: Any,
    kernel: Any,
    stride: Any = ...,
    padding: Any = ...,
    ceil_mode: bool = ...,
    count_include_pad: bool = ...,
    divisor: float | None = ...,
) -> Tensor:
    """Mean of each window; padding counts as zeros, or not at all without `count_include_pad`."""

def baddbmm(x: Any, batch1: Any, batch2: Any, *, beta: Any = ..., alpha: Any = ...) -> Tensor:
    """`beta * x + alpha * batch1 @ batch2` of batches of matrices. With `beta` 0, `x` is ignored."""

def bincount(x: Any, weights: Any = ..., minlength: int = ...) -> Tensor:
    """How often each number from 0 to the largest occurs in the vector `x` of integers, or the sum of its `weights`."""

def bitwise_and(x: Any, y: Any) -> Tensor:
    """Bits set in both."""

def bitwise_invert(x: Any) -> Tensor:
    """All bits flipped."""

def bitwise_left_shift(x: Any, y: Any) -> Tensor:
    """`x` times 2 to the power `y`, in bits."""

def bitwise_not(x: Any) -> Tensor:
    """All bits flipped."""

def bitwise_or(x: Any, y: Any) -> Tensor:
    """Bits set in either."""

def bitwise_right_shift(x: Any, y: Any) -> Tensor:
    """`x` shifted right by `y` bits; the sign is kept."""

def bitwise_xor(x: Any, y: Any) -> Tensor:
    """Bits set in exactly one."""

def block_diag(*tensors: Any) -> Tensor:
    """The block-diagonal matrix of matrices; vectors count as rows, scalars as matrices of one element."""

def bmm(x: Any, mat2: Any) -> Tensor:
    """The products of two batches of matrices, (b, n, m) and (b, m, p), without broadcasting."""

def broadcast_arrays(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors stretched to the shape that they have in common; one that has it already is returned itself."""

def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors stretched to the shape that they have in common; one that has it already is returned itself."""

def broadcast_to(x: Any, shape: Any) -> Tensor:
    """The tensor stretched to `shape` under NumPy's rules. Returns a view."""

def bucketize(x: Any, boundaries: Any, *, out_int32: bool = ..., right: bool = ...) -> Tensor:
    """The number (int64) of the bucket of each element: how many of the sorted `boundaries` are below it."""

def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of one element of each vector, as rows; of one vector, the vector itself. Returns a copy."""

def cast(x: Any, dtype: Any) -> Tensor:
    """`x` in another dtype: floats truncate towards zero, integers wrap, anything non-zero is True."""

def cat(xs: Any, axis: int | None = ..., *, dim: Any = ...) -> Tensor:
    """Tensors joined along an existing axis; with None, their elements in row-major order along one axis."""

def cdist(x1: Any, x2: Any, p: float = ..., compute_mode: str = ...) -> Tensor:
    """p-norms of the differences between rows of `x1` (..., P, M) and of `x2` (..., R, M): (..., P, R)."""

def ceil(x: Any) -> Tensor:
    """Smallest integer not below `x`."""

def celu(x: Any, alpha: Any = ...) -> Tensor:
    """`x` if positive, else `alpha * (exp(x / alpha) - 1)`. Source: Barron, arXiv:1704.07483."""

def chain_matmul(*matrices: Any) -> Tensor:
    """The product of matrices in the order of fewest multiplications, as `linalg.multi_dot`. Returns a copy."""

def cholesky(x: Any, upper: bool = ...) -> Tensor:
    """The lower triangular L with `x = L @ L.mH`, or the upper U with `x = U.mH @ U`, of symmetric or Hermitian matrices."""

def cholesky_inverse(x: Any, upper: bool = ...) -> Tensor:
    """The inverse of a symmetric matrix from its Cholesky factor."""

def cholesky_solve(x: Any, L: Any, upper: bool = ...) -> Tensor:
    """The solution X of `A @ X = x` from the Cholesky factor of `A`. Takes (..., m, n) and the factor (..., m, m)."""

def chunk(x: Any, chunks: int, axis: int = ..., *, dim: Any = ...) -> tuple[Tensor, ...]:
    """`x` cut into `chunks` parts along `axis`, the last possibly shorter. Raises ValueError unless there is at least one."""

def clamp(x: Any, min: Any = ..., max: Any = ...) -> Tensor:
    """`x` limited to [`min`, `max`]; either bound may be left out."""

def clamp_max(x: Any, max: Any) -> Tensor:
    """`x`, and `max` where `x` is above it. The shapes broadcast."""

def clamp_min(x: Any, min: Any) -> Tensor:
    """`x`, and `min` where `x` is below it. The shapes broadcast."""

def clip(x: Any, min: Any = ..., max: Any = ...) -> Tensor:
    """`x` limited to [`min`, `max`]; either bound may be left out."""

def clone(x: Any, *, memory_format: Any = ...) -> Tensor:
    """A copy in new memory; gradients flow through it. `memory_format` is a no-op: strides belong to the device."""

def column_stack(xs: Any) -> Tensor:
    """Tensors joined along their second axis, vectors as columns."""

def combinations(x: Any, r: int = ..., with_replacement: bool = ...) -> Tensor:
    """All combinations of `r` elements of a vector, as rows, in the order of `itertools.combinations`."""

def complex(real: Any, imag: Any) -> Tensor:
    """The complex tensor of two real ones of one dtype, float32 or float64, which are copied."""

def concat(xs: Any, axis: int | None = ..., *, dim: Any = ...) -> Tensor:
    """Tensors joined along an existing axis; with None, their elements in row-major order along one axis."""

def concatenate(xs: Any, axis: int | None = ..., *, dim: Any = ...) -> Tensor:
    """Tensors joined along an existing axis; with None, their elements in row-major order along one axis."""

def conj(x: Any) -> Tensor:
    """The complex conjugate. Returns a view, or the tensor itself, where nothing has to be computed; else a copy."""

def constant_pad_nd(x: Any, pad: Any, value: float = ...) -> Tensor:
    """The tensor with `value` around it; widths as pairs from the last axis on, as in `nn.functional.pad`, cut if negative."""

def contiguous(x: Any, *, memory_format: Any = ...) -> Tensor:
    """The tensor in row-major order, itself if it already is. `memory_format` is a no-op: strides belong to the device."""

def conv2d(
    x: Any, weight: Any, bias: Any = ..., stride: Any = ..., padding: Any = ..., dilation: Any = ..., groups: int = ...
) -> Tensor:
    """Cross-correlation of x (N, C, H, W) with weight (K, C/groups, R, S), plus bias (K,)."""

def copy(x: Any) -> Tensor:
    """A new tensor with the same elements, in row-major order. Returns a copy."""

def copysign(x: Any, y: Any) -> Tensor:
    """The magnitude of `x` with the sign of `y`."""

def corrcoef(x: Any) -> Tensor:
    """Correlation coefficients, -1 to 1, of the variables in the rows of `x` (variables, observations)."""

def cos(x: Any) -> Tensor:
    """Cosine of `x` radians."""

def cosh(x: Any) -> Tensor:
    """Hyperbolic cosine."""

def cosine_similarity(x1: Any, x2: Any, dim: int = ..., eps: float = ...) -> Tensor:
    """The scalar product along `dim`, divided by both 2-norms (each at least `eps`). Operands are broadcast."""

def count_nonzero(x: Any, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
    """How many elements over `axis` are not 0 (int64)."""

def cov(x: Any, *, correction: float = ..., fweights: Any = ..., aweights: Any = ...) -> Tensor:
    """Covariance matrix of the variables in the rows of `x` (variables, observations); of one variable, its variance."""

def cross(x: Any, other: Any, dim: int | None = ...) -> Tensor:
    """The cross product along `dim`, by default the first axis of length 3, as in PyTorch."""

def cummax(x: Any, axis: int = ..., *, dim: Any = ...) -> SelectionResult:
    """Largest element up to each along `axis`, and its position (int64), the last of equal ones. NaN counts as largest."""

def cummin(x: Any, axis: int = ..., *, dim: Any = ...) -> SelectionResult:
    """Smallest element up to each along `axis`, and its position (int64), the last of equal ones. NaN counts as smallest."""

def cumprod(x: Any, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Tensor:
    """Product of the elements up to and including each along `axis`. Integers and bool multiply in 64 bits."""

def cumsum(x: Any, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Tensor:
    """Sum of the elements up to and including each along `axis`. Integers and bool sum in 64 bits."""

def cumulative_prod(
    x: Any, *, axis: int | None = ..., dtype: Any = ..., include_initial: bool = ..., dim: Any = ...
) -> Tensor:
    """Products of the elements up to and including each along `axis`, which a vector need not name. Integers in 64 bits."""

def cumulative_sum(
    x: Any, *, axis: int | None = ..., dtype: Any = ..., include_initial: bool = ..., dim: Any = ...
) -> Tensor:
    """Sums of the elements up to and including each along `axis`, which a vector need not name. Integers sum in 64 bits."""

def cumulative_trapezoid(y: Any, x: Any = ..., *, dx: Any = ..., axis: int = ..., dim: Any = ...) -> Tensor:
    """Integrals up to each element but the first; see `trapezoid`."""

def deg2rad(x: Any) -> Tensor:
    """Degrees as radians. Takes a tensor of any shape; integers become float32."""

def det(x: Any) -> Tensor:
    """Determinants of square matrices (..., n, n). First and second derivatives exist for singular matrices too."""

def diag(x: Any, diagonal: int = ..., *, k: Any = ...) -> Tensor:
    """A square matrix with the vector `x` as its diagonal number `diagonal`, or that diagonal of the matrix `x`."""

def diag_embed(x: Any, offset: int = ..., dim1: int = ..., dim2: int = ...) -> Tensor:
    """Square matrices in the axes `dim1` and `dim2`, with the last axis of `x` as diagonal number `offset` and zeros elsewhere."""

def diagflat(x: Any, offset: int = ...) -> Tensor:
    """A square matrix whose diagonal number `offset` holds the elements of `x` in row-major order. Compare `torch.diagflat`."""

def diagonal(x: Any, offset: int = ..., dim1: int = ..., dim2: int = ...) -> Tensor:
    """Diagonal number `offset` of the matrices in two axes, as the last axis. Returns a view."""

def diagonal_scatter(x: Any, src: Any, offset: int = ..., dim1: int = ..., dim2: int = ...) -> Tensor:
    """`x` with diagonal number `offset` of the matrices in two axes replaced by `src`, shaped as `diagonal` returns it."""

def diff(x: Any, n: int = ..., axis: int = ..., prepend: Any = ..., append: Any = ..., *, dim: Any = ...) -> Tensor:
    """The `n`-th difference of neighbours along `axis`, with `prepend` and `append` joined on first. Returns a copy."""

def digamma(x: Any) -> Tensor:
    """Logarithmic derivative of the gamma function; NaN at the negative integers."""

def dist(x: Any, other: Any, p: float = ...) -> Tensor:
    """p-norm of `x - other`, which are broadcast."""

def div(x: Any, y: Any, *, rounding_mode: Any = ...) -> Tensor:
    """`x / y`; with `rounding_mode` "floor" or "trunc" rounded down or towards zero, and integers stay integers."""

def divide(x: Any, y: Any) -> Tensor:
    """Quotient `x / y`, floating point also for integers."""

def dot(x: Any, y: Any) -> Tensor:
    """The sum of the products of two vectors' elements."""

def dsplit(x: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """The tensor cut along its third axis; as `tensor_split`. Returns a view."""

def dstack(xs: Any) -> Tensor:
    """Tensors joined along their third axis."""

def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sum of products over labelled axes: `einsum("bij,bjk->bik", x, y)` is a batched matrix product. Returns a copy."""

def elu(x: Any, alpha: Any = ...) -> Tensor:
    """`x` if positive, else `alpha * (exp(x) - 1)`."""

def embedding(weight: Any, index: Any) -> Tensor:
    """Rows of `weight` (R, W) by number: index (...) to (..., W)."""

def eq(x: Any, y: Any) -> Tensor:
    """True where `x == y`."""

def equal(x: Any, y: Any) -> Tensor:
    """True where `x == y`."""

def erf(x: Any) -> Tensor:
    """Error function."""

def erfc(x: Any) -> Tensor:
    """Complementary error function `1 - erf(x)`, accurate for large `x`."""

def erfinv(x: Any) -> Tensor:
    """Inverse of the error function; infinite at 1 and -1, NaN beyond."""

def exp(x: Any) -> Tensor:
    """e to the power `x`."""

def exp2(x: Any) -> Tensor:
    """2 to the power `x`."""

def expand_as(x: Any, other: Any) -> Tensor:
    """The tensor broadcast to the shape of another. Returns a view."""

def expand_dims(x: Any, axis: Any = ..., *, dim: Any = ...) -> Tensor:
    """The tensor with a new axis of length 1 at position `axis`, or at each of several positions, of the result."""

def expm1(x: Any) -> Tensor:
    """`exp(x) - 1`, accurate near 0."""

def fix(x: Any) -> Tensor:
    """`x` without its fraction."""

def flatten(x: Any, start_axis: int = ..., end_axis: int = ..., *, start_dim: Any = ..., end_dim: Any = ...) -> Tensor:
    """The tensor with axes `start_axis` to `end_axis` (inclusive) merged into one; itself if that is one axis already."""

def flip(x: Any, axis: Any = ..., *more: Any, dims: Any = ..., dim: Any = ...) -> Tensor:
    """The tensor with the elements of the given axes in reverse order, of all by default: `flip(x, (0, 1))`."""

def fliplr(x: Any) -> Tensor:
    """The tensor with the elements of its second axis in reverse order. Returns a copy."""

def flipud(x: Any) -> Tensor:
    """The tensor with the elements of its first axis in reverse order. Returns a copy."""

def float_power(x: Any, exponent: Any) -> Tensor:
    """`x` to the power `exponent` in float64. Raises UnsupportedDTypeError on a device without float64."""

def floor(x: Any) -> Tensor:
    """Largest integer not above `x`."""

def floor_divide(x: Any, y: Any) -> Tensor:
    """Largest integer not above `x / y`. For floats, the quotient is exact, so that it agrees with `remainder`."""

def fmax(x: Any, y: Any) -> Tensor:
    """The larger of `x` and `y`, or the one that is not NaN."""

def fmin(x: Any, y: Any) -> Tensor:
    """The smaller of `x` and `y`, or the one that is not NaN."""

def fmod(x: Any, y: Any) -> Tensor:
    """Remainder of `x / y` with the sign of `x`, as in C."""

def frac(x: Any) -> Tensor:
    """The fraction of `x`, with its sign."""

def frexp(x: Any) -> FrexpResult:
    """Mantissa in [0.5, 1) with the sign of `x`, and integer exponent: `x = mantissa * 2 ** exponent`."""

def full(shape: Any, value: Any, dtype: Any = ..., device: Any = ...) -> Tensor:
    """A tensor of `shape` filled with a number."""

def fused_linear(
    x: Any, weight: Any, bias: Any = ..., residual: Any = ..., activation: str = ..., scale: float = ...
) -> Tensor:
    """`activation(scale * x @ weight.T + bias) + residual`: x (..., in), weight (out, in), bias (out,), residual (..., out)."""

def gather(x: Any, axis: int, index: Any, *, dim: Any = ...) -> Tensor:
    """`out[i, j] = x[index[i, j], j]` for `axis` 0: elements of `x` by number, where `index` may be shorter than `x`."""

def gcd(x: Any, y: Any) -> Tensor:
    """Greatest common divisor."""

def ge(x: Any, y: Any) -> Tensor:
    """True where `x >= y`."""

def gelu(x: Any, approximate: str = ...) -> Tensor:
    """Gaussian error linear unit, exact or by tanh (`approximate`). Source: Hendrycks and Gimpel, arXiv:1606.08415."""

def geqrf(x: Any) -> GeqrfResult:
    """R above and Householder vectors below the diagonal, and their scales tau; see `linalg.householder_product`."""

def ger(x: Any, vec2: Any) -> Tensor:
    """The products of each element of one vector with each of another: (n,) and (m,) to (n, m)."""

def glu(x: Any, axis: int = ..., *, dim: Any = ...) -> Tensor:
    """Gated linear unit: the first half along `axis` times the sigmoid of the second. Raises ValueError for an odd length."""

def gradient(
    x: Any, *, spacing: Any = ..., axis: Any = ..., edge_order: int = ..., dim: Any = ...
) -> tuple[Tensor, ...]:
    """Derivatives along each axis by central differences, of second order inside and of `edge_order` 1 or 2 at both ends."""

def greater(x: Any, y: Any) -> Tensor:
    """True where `x > y`."""

def greater_equal(x: Any, y: Any) -> Tensor:
    """True where `x >= y`."""

def gt(x: Any, y: Any) -> Tensor:
    """True where `x > y`."""

def hardshrink(x: Any, lambd: Any = ...) -> Tensor:
    """`x` outside [-`lambd`, `lambd`], else 0."""

def hardsigmoid(x: Any) -> Tensor:
    """`(x + 3) / 6` limited to [0, 1]."""

def hardswish(x: Any) -> Tensor:
    """`x * hardsigmoid(x)`. Source: Howard et al., arXiv:1905.02244."""

def hardtanh(x: Any, min_val: Any = ..., max_val: Any = ...) -> Tensor:
    """`x` limited to [`min_val`, `max_val`]; the gradient at the bounds is 0."""

def heaviside(x: Any, values: Any) -> Tensor:
    """1 where `x` is positive, `values` where it is 0, else 0."""

def histc(x: Any, bins: int = ..., min: float = ..., max: float = ...) -> Tensor:
    """How many elements of `x` are in each of `bins` equal bins from `min` to `max`, in the dtype of `x`."""

def histogram(x: Any, bins: Any = ..., *, range: Any = ..., weight: Any = ..., density: bool = ...) -> HistogramResult:
    """Counts of elements by bin, and the edges of the bins. Returns a copy."""

def histogramdd(x: Any, bins: Any, *, range: Any = ..., weight: Any = ..., density: bool = ...) -> tuple[Tensor, ...]:
    """Counts of points (..., D) by bins in D dimensions, and the edges of each dimension. Returns a copy."""

def hsplit(x: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """The tensor cut along its second axis, a vector along its only one; as `tensor_split`. Returns a view."""

def hstack(xs: Any) -> Tensor:
    """Tensors joined along their second axis, vectors along their only one."""

def hypot(x: Any, y: Any) -> Tensor:
    """`sqrt(x * x + y * y)` without overflow."""

def i0(x: Any) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""

def igamma(a: Any, x: Any) -> Tensor:
    """Regularized lower incomplete gamma function P(a, x)."""

def igammac(a: Any, x: Any) -> Tensor:
    """Regularized upper incomplete gamma function Q(a, x)."""

def imag(x: Any) -> Tensor:
    """The imaginary part of complex numbers. Raises UnsupportedDTypeError for real tensors. Returns a view."""

def index_add(x: Any, axis: int, index: Any, source: Any, *, alpha: float = ..., dim: Any = ...) -> Tensor:
    """`x` with `alpha` times each slice of `source` along `axis` added to the slice that the vector `index` names."""

def index_copy(x: Any, axis: int, index: Any, source: Any, *, dim: Any = ...) -> Tensor:
    """`x` with the slices along `axis` that the vector `index` names replaced by those of `source`; the last one wins."""

def index_fill(x: Any, axis: int, index: Any, value: Any, *, dim: Any = ...) -> Tensor:
    """`x` with `value`, a number or a tensor without axes, in the slices along `axis` that the vector `index` names."""

def index_put(x: Any, indices: Any, values: Any, accumulate: bool = ...) -> Tensor:
    """`x` with `x[indices] = values`, where the last of several writers wins, or with the sum of all added if they accumulate."""

def index_reduce(
    x: Any, axis: int, index: Any, source: Any, reduce: str, *, include_self: bool = ..., dim: Any = ...
) -> Tensor:
    """`x` with the slices along `axis` that `index` names combined with those of `source`, by prod, mean, amax or amin."""

def index_select(x: Any, axis: int, index: Any, *, dim: Any = ...) -> Tensor:
    """The slices of `x` along `axis` that the vector `index` names. Compare `torch.index_select`. Returns a copy."""

def inner(x: Any, other: Any) -> Tensor:
    """The sums of products over the last axes: (..., k) and (---, k) to (..., ---). Scalars multiply."""

def inverse(x: Any) -> Tensor:
    """Inverses of square matrices (..., n, n). Raises LinAlgError for singular ones."""

def isclose(x: Any, y: Any, rtol: float = ..., atol: float = ..., equal_nan: bool = ...) -> Tensor:
    """True where `|x - y| <= atol + rtol * |y|`, where both are the same infinity and, with `equal_nan`, both NaN."""

def isfinite(x: Any) -> Tensor:
    """True where `x` is neither infinite nor NaN."""

def isin(elements: Any, test_elements: Any, *, assume_unique: bool = ..., invert: bool = ...) -> Tensor:
    """Return whether each element occurs among `test_elements`; with `invert`, whether it does not. Either may be a number."""

def isinf(x: Any) -> Tensor:
    """True where `x` is infinite."""

def isnan(x: Any) -> Tensor:
    """True where `x` is NaN."""

def isneginf(x: Any) -> Tensor:
    """True where `x` is negative infinity."""

def isposinf(x: Any) -> Tensor:
    """True where `x` is positive infinity."""

def isreal(x: Any) -> Tensor:
    """True where the imaginary part is 0. Takes a tensor of any shape; the result is bool."""

def istft(
    x: Any,
    n_fft: int,
    hop_length: int | None = ...,
    win_length: int | None = ...,
    window: Any = ...,
    center: bool = ...,
    normalized: bool = ...,
    onesided: Any = ...,
    length: int | None = ...,
    return_complex: bool = ...,
) -> Tensor:
    """The signals (..., n) of least squared error whose short-time spectra are `x` (..., frequencies, windows)."""

def kron(x: Any, other: Any) -> Tensor:
    """The Kronecker product: the tensor of blocks `x[i] * other`. Missing leading axes have length 1."""

def kthvalue(x: Any, k: int, dim: int = ..., keepdim: bool = ...) -> SelectionResult:
    """The `k`-th smallest element along `dim`, counted from 1, and its position (int64). NaN counts as the largest."""

def lcm(x: Any, y: Any) -> Tensor:
    """Least common multiple; it wraps where the dtype does not hold it."""

def ldexp(x: Any, other: Any) -> Tensor:
    """`x` times 2 to the power `other`, in floating point."""

def le(x: Any, y: Any) -> Tensor:
    """True where `x <= y`."""

def leaky_relu(x: Any, negative_slope: Any = ...) -> Tensor:
    """`x` if positive, else `negative_slope * x`."""

def lerp(x: Any, end: Any, weight: Any) -> Tensor:
    """`x + weight * (end - x)`, exact at both ends."""

def less(x: Any, y: Any) -> Tensor:
    """True where `x < y`."""

def less_equal(x: Any, y: Any) -> Tensor:
    """True where `x <= y`."""

def lgamma(x: Any) -> Tensor:
    """Logarithm of the absolute value of the gamma function; infinite at 0 and the negative integers."""

def linear(x: Any, weight: Any, bias: Any = ...) -> Tensor:
    """`x @ weight.T + bias`: x (..., in), weight (out, in), bias (out,)."""

def log(x: Any) -> Tensor:
    """Natural logarithm."""

def log10(x: Any) -> Tensor:
    """Logarithm to base 10."""

def log1p(x: Any) -> Tensor:
    """`log(1 + x)`, accurate near 0."""

def log2(x: Any) -> Tensor:
    """Logarithm to base 2."""

def log_softmax(x: Any, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Tensor:
    """Logarithm of softmax, accurate where the probability is tiny."""

def logaddexp(x: Any, y: Any) -> Tensor:
    """`log(exp(x) + exp(y))` without overflow."""

def logaddexp2(x: Any, y: Any) -> Tensor:
    """`log2(2 ** x + 2 ** y)` without overflow."""

def logcumsumexp(x: Any, axis: int = ..., *, dim: Any = ...) -> Tensor:
    """`log(cumsum(exp(x)))` along `axis` without overflow."""

def logdet(x: Any) -> Tensor:
    """Logarithms of determinants (..., n, n): -infinity where they are 0, NaN where they are negative."""

def logical_and(x: Any, y: Any) -> Tensor:
    """True where both are non-zero."""

def logical_not(x: Any) -> Tensor:
    """True where `x` is zero."""

def logical_or(x: Any, y: Any) -> Tensor:
    """True where either is non-zero."""

def logical_xor(x: Any, y: Any) -> Tensor:
    """True where exactly one is non-zero."""

def logit(x: Any, eps: float | None = ...) -> Tensor:
    """Inverse of sigmoid: `log(x / (1 - x))`, with `eps` of `x` limited to [eps, 1 - eps]."""

def logsigmoid(x: Any) -> Tensor:
    """`log(sigmoid(x))` without overflow."""

def logsumexp(x: Any, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
    """`log(sum(exp(x)))` over `axis` without overflow; -infinity of no elements."""

def lt(x: Any, y: Any) -> Tensor:
    """True where `x < y`."""

def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = ..., unpack_pivots: bool = ...) -> LUResult:
    """P, L and U of matrices (..., m, n) from the result of `linalg.lu_factor`; parts that are not unpacked are empty."""

def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """`x` with `value`, a number or a tensor without axes, where `mask` is true; `mask` is broadcast."""

def masked_scatter(x: Any, mask: Any, source: Any) -> Tensor:
    """`x` with the elements where `mask` is true replaced by the first ones of `source`, in row-major order."""

def masked_select(x: Any, mask: Any) -> Tensor:
    """The elements of `x` where `mask` is true, in row-major order; both are broadcast. Compare `torch.masked_select`."""

def matmul(x: Any, y: Any, *, out_dtype: Any = ...) -> Tensor:
    """Matrix product as NumPy's: 1-D inputs are vectors, further axes broadcast: (..., M, K) @ (..., K, N)."""

def matrix_exp(x: Any) -> Tensor:
    """The exponential of square matrices (..., n, n), by scaling and squaring (Higham 2005); of halves, in float32."""

def matrix_power(x: Any, n: int) -> Tensor:
    """Powers of square matrices (..., m, m); negative ones of the inverse. Raises LinAlgError for singular matrices then."""

def matrix_transpose(x: Any) -> Tensor:
    """The matrices (..., m, n) transposed. Raises ShapeError for fewer than two axes. Returns a view."""

def max(x: Any, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
    """Largest element over `axis`; NaN if any is NaN."""

def max_pool2d(
    x: Any, kernel: Any, stride: Any = ..., padding: Any = ..., dilation: Any = ..., ceil_mode: bool = ...
) -> Tensor:
    """Largest element of each window; NaN if any is NaN. Padding counts as -infinity."""

def maximum(x: Any, y: Any) -> Tensor:
    """The larger of `x` and `y`; NaN if either is NaN."""

def mean(
    x: Any, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
) -> Tensor:
    """Arithmetic mean over `axis`; NaN of no elements."""

def median(x: Any, dim: int | None = ..., keepdim: bool = ..., *, axis: Any = ..., keepdims: bool = ...) -> Tensor:
    """The median of all elements or, given `dim`, medians along it and their positions (int64)."""

def meshgrid(*tensors: Any, indexing: str = ...) -> tuple[Tensor, ...]:
    """Coordinates of a grid, one tensor for each vector: axis i runs along vector i with `indexing="ij"`."""

def min(x: Any, axis: Any = ..., keepdims: bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
    """Smallest element over `axis`; NaN if any is NaN."""

def minimum(x: Any, y: Any) -> Tensor:
    """The smaller of `x` and `y`; NaN if either is NaN."""

def mish(x: Any) -> Tensor:
    """`x * tanh(softplus(x))`. Source: Misra, arXiv:1908.08681."""

def mm(x: Any, mat2: Any) -> Tensor:
    """The product of two matrices, without broadcasting."""

def mode(x: Any, dim: int = ..., keepdim: bool = ...) -> SelectionResult:
    """The most frequent element along `dim`, the smallest of several, and its last position (int64)."""

def moveaxis(x: Any, source: Any, destination: Any) -> Tensor:
    """The tensor with axis `source`, or each of several, moved to position `destination`. Returns a view."""

def movedim(x: Any, source: Any, destination: Any) -> Tensor:
    """The tensor with axis `source`, or each of several, moved to position `destination`. Returns a view."""

def msort(x: Any) -> Tensor:
    """The elements along the first axis in ascending order. NaN counts as the largest."""

def mul(x: Any, y: Any) -> Tensor:
    """Product `x * y`."""

def multiply(x: Any, y: Any) -> Tensor:
    """Product `x * y`."""

def mv(x: Any, vec: Any) -> Tensor:
    """The product of a matrix (n, m) and a vector (m,)."""

def mvlgamma(x: Any, p: int) -> Tensor:
    """Logarithm of the multivariate gamma function of dimension `p`; `x` must be greater than (p - 1) / 2."""

def nan_to_num(x: Any, nan: float = ..., posinf: float | None = ..., neginf: float | None = ...) -> Tensor:
    """`x` with NaN and infinities replaced, infinities by the largest and the lowest finite number unless given."""

def nanmean(
    x: Any, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
) -> Tensor:
    """Arithmetic mean over `axis` of the elements that are not NaN; NaN if there is none."""

def nanmedian(x: Any, dim: int | None = ..., keepdim: bool = ...) -> Tensor:
    """The median of the elements that are not NaN; see `median`."""

def nanquantile(x: Any, q: Any, dim: int | None = ..., keepdim: bool = ..., *, interpolation: str = ...) -> Tensor:
    """Quantiles of the elements that are not NaN; see `quantile`."""

def nansum(
    x: Any, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
) -> Tensor:
    """Sum over `axis` of the elements that are not NaN."""

def narrow(x: Any, axis: int, start: int, length: int, *, dim: Any = ...) -> Tensor:
    """`length` elements along `axis` from `start`, which may count from the end. Raises ShapeError. Returns a view."""

def ne(x: Any, y: Any) -> Tensor:
    """True where `x != y`."""

def neg(x: Any) -> Tensor:
    """`-x`."""

def negative(x: Any) -> Tensor:
    """`-x`."""

def nextafter(x: Any, y: Any) -> Tensor:
    """The next floating-point number after `x` in the direction of `y`."""

def nonzero(x: Any, *, as_tuple: bool = ...) -> Tensor:
    """Where `x` is not zero: one int64 vector per axis, in row-major order; with `as_tuple=False` the columns of `argwhere`."""

def nonzero_static(x: Any, *, size: int, fill_value: int = ...) -> Tensor:
    """The first `size` rows of `argwhere`, and `fill_value` in the rows beyond the last hit: int64 (size, axes)."""

def norm(x: Any, p: Any = ..., dim: Any = ..., keepdim: bool = ..., dtype: Any = ...) -> Tensor:
    """p-norm over `dim`, all axes by default; "fro" is the 2-norm, "nuc" the nuclear norm of matrices in two axes."""

def not_equal(x: Any, y: Any) -> Tensor:
    """True where `x != y`."""

def orgqr(x: Any, tau: Any) -> Tensor:
    """The first columns of a product of Householder reflections, as `linalg.householder_product`."""

def ormqr(x: Any, tau: Any, other: Any, left: bool = ..., transpose: bool = ...) -> Tensor:
    """The product of the square Q of Householder reflections `x` and `tau` with `other`, from the left or the right."""

def outer(x: Any, vec2: Any) -> Tensor:
    """The products of each element of one vector with each of another: (n,) and (m,) to (n, m)."""

def pad(x: Any, widths: Any, value: float = ...) -> Tensor:
    """`x` with `widths[i] = (before, after)` elements of `value` added on axis i. Returns a copy."""

def pairwise_distance(x1: Any, x2: Any, p: float = ..., eps: float = ..., keepdim: bool = ...) -> Tensor:
    """p-norm along the last axis of `x1 - x2 + eps`, which are broadcast."""

def pdist(x: Any, p: float = ...) -> Tensor:
    """p-norms of the differences between all pairs of rows of `x` (N, M), in the order of the upper triangle."""

def permute(x: Any, axes: Any = ..., *, dims: Any = ...) -> Tensor:
    """The tensor with axis `axes[i]` at position i. Returns a view."""

def permute_dims(x: Any, axes: Any, *, dims: Any = ...) -> Tensor:
    """The tensor with axis `axes[i]` at position i. Returns a view."""

def pinverse(x: Any, rcond: float = ...) -> Tensor:
    """Pseudo-inverses, where singular values up to `rcond` times the largest count as 0."""

def polar(abs: Any, angle: Any) -> Tensor:
    """The complex numbers `abs * exp(1j * angle)`, of float32 or float64."""

def polygamma(n: Any, x: Any) -> Tensor:
    """Derivative `n` of digamma at `x`. Raises ValueError for a negative `n`. Takes a tensor of any shape."""

def positive(x: Any) -> Tensor:
    """`x` itself, a tensor of any shape. Returns a view."""

def pow(x: Any, y: Any) -> Tensor:
    """`x` to the power `y`."""

def prelu(x: Any, weight: Any) -> Tensor:
    """`x` if positive, else `weight * x`; `weight` has one element, or one per channel (axis 1). Raises ValueError otherwise."""

def prod(
    x: Any, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
) -> Tensor:
    """Product over `axis`."""

def put(x: Any, index: Any, source: Any, accumulate: bool = ...) -> Tensor:
    """`x` with the elements that `index` names in row-major order replaced by those of `source`, or added to them."""

def quantile(x: Any, q: Any, dim: int | None = ..., keepdim: bool = ..., *, interpolation: str = ...) -> Tensor:
    """Quantiles `q` (a number or a vector, 0 to 1) of floating-point `x` along `dim`, or of all elements."""

def rad2deg(x: Any) -> Tensor:
    """Radians as degrees. Takes a tensor of any shape; integers become float32."""

def ravel(x: Any) -> Tensor:
    """The elements in row-major order along one axis."""

def real(x: Any) -> Tensor:
    """The real part; real numbers themselves. Returns a view."""

def reciprocal(x: Any) -> Tensor:
    """`1 / x`."""

def relu(x: Any) -> Tensor:
    """`max(x, 0)`."""

def relu6(x: Any) -> Tensor:
    """`x` limited to [0, 6]. Source: Howard et al., arXiv:1704.04861."""

def remainder(x: Any, y: Any) -> Tensor:
    """Remainder of `x / y` with the sign of `y`, as Python's %."""

def renorm(x: Any, p: float, dim: int, maxnorm: float) -> Tensor:
    """`x` with each slice along `dim` whose p-norm is above `maxnorm` scaled down to it."""

def repeat(x: Any, repeats: Any, axis: int | None = ..., *, dim: Any = ...) -> Tensor:
    """Each element `repeats` times in a row along an axis, as `repeat_interleave`. The method `Tensor.repeat` is PyTorch's."""

def repeat_interleave(
    x: Any, repeats: Any = ..., axis: int | None = ..., *, output_size: int | None = ..., dim: Any = ...
) -> Tensor:
    """Each element `repeats` times in a row along an axis; without one, the elements in row-major order."""

def reshape(x: Any, shape: Any, *, copy: Any = ...) -> Tensor:
    """The elements in row-major order in another shape, where -1 stands for one length. A view if the strides allow it."""

def reshape_as(x: Any, other: Any) -> Tensor:
    """The tensor reshaped to the shape of another."""

def roll(x: Any, shift: Any, axis: Any = ..., *, dims: Any = ..., shifts: Any = ..., dim: Any = ...) -> Tensor:
    """The tensor with its elements moved along axes by `shift`, those beyond the end to the front; without axes, in a row."""

def rot90(x: Any, k: int = ..., axes: Any = ..., *, dims: Any = ...) -> Tensor:
    """The tensor turned by 90 degrees `k` times, from the first of two axes towards the second. Returns a copy."""

def round(x: Any, decimals: int = ...) -> Tensor:
    """`x` rounded to so many decimals, to tens and hundreds if negative; halves to even."""

def row_stack(xs: Any) -> Tensor:
    """Tensors joined along their first axis, vectors as rows."""

def rsqrt(x: Any) -> Tensor:
    """`1 / sqrt(x)`."""

def rsub(x: Any, y: Any, *, alpha: float = ...) -> Tensor:
    """`y - alpha * x`. The shapes broadcast."""

def scatter(
    x: Any, axis: int, index: Any, src: Any = ..., *, value: Any = ..., reduce: Any = ..., dim: Any = ...
) -> Tensor:
    """`x` with `out[index[i, j], j] = src[i, j]` for axis 0; of several writers the last in row-major order wins."""

def scatter_add(x: Any, axis: int, index: Any, src: Any, *, dim: Any = ...) -> Tensor:
    """`x` with `src[i, j]` added to `out[index[i, j], j]` for axis 0. Compare `torch.scatter_add`. Raises ShapeError."""

def scatter_reduce(
    x: Any, axis: int, index: Any, src: Any, reduce: str, *, include_self: bool = ..., dim: Any = ...
) -> Tensor:
    """`x` with `out[index[i, j], j]` combined with all its `src[i, j]` for axis 0, by sum, mean, prod, amax or amin."""

def searchsorted(
    sorted_sequence: Any, x: Any, *, out_int32: bool = ..., right: bool = ..., side: Any = ..., sorter: Any = ...
) -> Tensor:
    """Where to insert `x` into `sorted_sequence` (..., n) so that it stays sorted along its last axis (int64)."""

def segment_reduce(
    data: Any,
    reduce: str,
    *,
    lengths: Any = ...,
    indices: Any = ...,
    offsets: Any = ...,
    axis: int = ...,
    unsafe: bool = ...,
    initial: float | None = ...,
    dim: Any = ...,
) -> Tensor:
    """Reduce segments of `data` along `axis` by sum, mean, prod, max or min; one slice of the result for each."""

def select(x: Any, axis: int, index: int, *, dim: Any = ...) -> Tensor:
    """The slice number `index` along `axis`, without that axis. Raises IndexError. Returns a view."""

def select_scatter(x: Any, src: Any, axis: int, index: int, *, dim: Any = ...) -> Tensor:
    """`x` with slice number `index` along `axis` replaced by `src`. Compare `torch.select_scatter`."""

def selu(x: Any) -> Tensor:
    """Scaled exponential linear unit, whose constants keep mean 0 and variance 1. Source: Klambauer et al., arXiv:1706.02515."""

def sgn(x: Any) -> Tensor:
    """-1, 0 or 1 by the sign of `x`; NaN stays NaN, and bool stays bool."""

def sigmoid(x: Any) -> Tensor:
    """Logistic function `1 / (1 + exp(-x))`."""

def sign(x: Any) -> Tensor:
    """-1, 0 or 1 by the sign of `x`; NaN stays NaN, and bool stays bool."""

def signbit(x: Any) -> Tensor:
    """True where `x` is negative or -0; of a NaN, no promise."""

def silu(x: Any) -> Tensor:
    """`x * sigmoid(x)`, also called swish."""

def sin(x: Any) -> Tensor:
    """Sine of `x` radians."""

def sinc(x: Any) -> Tensor:
    """Cardinal sine `sin(pi x) / (pi x)`, 1 at 0."""

def sinh(x: Any) -> Tensor:
    """Hyperbolic sine."""

def slice_scatter(
    x: Any,
    src: Any,
    axis: int = ...,
    start: int | None = ...,
    end: int | None = ...,
    step: int = ...,
    *,
    dim: Any = ...,
) -> Tensor:
    """`x` with the elements `start:end:step` along `axis` replaced by `src`. Compare `torch.slice_scatter`."""

def slogdet(x: Any) -> SlogdetResult:
    """Sign or phase, and logarithm of the absolute value, of determinants (..., n, n); 0 and -infinity of singular ones."""

def softmax(x: Any, axis: int = ..., dtype: Any = ..., *, dim: Any = ...) -> Tensor:
    """`exp(x)` divided by its sum along `axis`, without overflow."""

def softplus(x: Any) -> Tensor:
    """`log(1 + exp(x))` without overflow."""

def softshrink(x: Any, lambd: Any = ...) -> Tensor:
    """`x` moved towards 0 by `lambd`; 0 within [-`lambd`, `lambd`]."""

def softsign(x: Any) -> Tensor:
    """`x / (1 + |x|)`."""

def sort(x: Any, axis: int = ..., descending: bool = ..., stable: bool = ..., *, dim: Any = ...) -> Tensor:
    """The elements along `axis` in ascending (or `descending`) order, always stably. NaN counts as the largest."""

def split(
    x: Any,
    sizes: Any = ...,
    axis: int = ...,
    *,
    split_size: Any = ...,
    split_size_or_sections: Any = ...,
    dim: Any = ...,
) -> tuple[Tensor, ...]:
    """Consecutive parts along `axis`: of `sizes` elements each (the last may be shorter), or of the sizes listed."""

def split_with_sizes(x: Any, split_sizes: Any, axis: int = ..., *, dim: Any = ...) -> tuple[Tensor, ...]:
    """Consecutive parts of the sizes listed along an axis. Returns a view."""

def sqrt(x: Any) -> Tensor:
    """Square root."""

def square(x: Any) -> Tensor:
    """`x * x`."""

def squeeze(x: Any, axis: Any = ..., *, dim: Any = ...) -> Tensor:
    """The tensor without the given axes of length 1, by default all of them. Returns a view."""

def stack(xs: Any, axis: int = ..., *, dim: Any = ...) -> Tensor:
    """Tensors of one shape joined along a new axis."""

def std(
    x: Any,
    axis: Any = ...,
    unbiased: Any = ...,
    keepdims: bool = ...,
    *,
    correction: float | None = ...,
    dim: Any = ...,
    keepdim: Any = ...,
) -> Tensor:
    """Standard deviation over `axis`, from the sum of squares divided by n - `correction`, which is 0 by default."""

def std_mean(
    x: Any, dim: Any = ..., unbiased: Any = ..., keepdim: bool = ..., *, correction: float | None = ...
) -> tuple[Tensor, ...]:
    """Standard deviation and mean over `dim`, with PyTorch's arguments: `correction` is 1 by default."""

def stft(
    x: Any,
    n_fft: int,
    hop_length: int | None = ...,
    win_length: int | None = ...,
    window: Any = ...,
    center: bool = ...,
    pad_mode: str = ...,
    normalized: bool = ...,
    onesided: Any = ...,
    return_complex: Any = ...,
) -> Tensor:
    """Spectra (..., frequencies, windows) of windows of `n_fft` samples, `hop_length` (n_fft // 4) apart, of signals (..., n)."""

def sub(x: Any, y: Any, *, alpha: float = ...) -> Tensor:
    """`x - alpha * y`. The shapes broadcast."""

def subtract(x: Any, y: Any) -> Tensor:
    """Difference `x - y`."""

def sum(
    x: Any, axis: Any = ..., keepdims: bool = ..., dtype: Any = ..., *, dim: Any = ..., keepdim: Any = ...
) -> Tensor:
    """Sum over `axis` (all axes by default). Integers and bool sum in 64 bits."""

def sum_to(x: Any, shape: Any) -> Tensor:
    """`x` summed over the axes along which `shape` would be broadcast to it: the inverse of broadcasting."""

def sum_to_size(x: Any, *size: Any) -> Tensor:
    """`x` summed over the axes along which `size` would be broadcast to it. Raises ValueError where it would not."""

def swapaxes(x: Any, axis0: int, axis1: int, *, dim0: Any = ..., dim1: Any = ...) -> Tensor:
    """The tensor with two axes exchanged. Returns a view."""

def swapdims(x: Any, axis0: int, axis1: int, *, dim0: Any = ..., dim1: Any = ...) -> Tensor:
    """The tensor with two axes exchanged. Returns a view."""

def t(x: Any) -> Tensor:
    """The transpose of a matrix; a vector or a number as it is. Raises ValueError for more than two axes."""

def take(x: Any, index: Any, axis: int | None = ..., *, dim: Any = ...) -> Tensor:
    """The slices of `x` along `axis` that the integer tensor `index` names; its axes replace `axis`. Negative ones wrap."""

def take_along_axis(x: Any, index: Any, axis: int = ..., *, dim: Any = ...) -> Tensor:
    """Elements of `x` along `axis` by number. All other axes of `x` and `index` are broadcast; negative numbers wrap."""

def take_along_dim(x: Any, indices: Any, axis: int | None = ..., *, dim: Any = ...) -> Tensor:
    """`take_along_axis`; without an axis, the elements of `x` by number in row-major order."""

def tan(x: Any) -> Tensor:
    """Tangent of `x` radians."""

def tanh(x: Any) -> Tensor:
    """Hyperbolic tangent."""

def tanhshrink(x: Any) -> Tensor:
    """`x - tanh(x)`."""

def tensor_split(x: Any, indices_or_sections: Any, axis: int = ..., *, dim: Any = ...) -> tuple[Tensor, ...]:
    """The tensor cut into a number of nearly equal parts along an axis, or before each of several positions."""

def tensordot(x: Any, y: Any, axes: Any = ..., *, dims: Any = ...) -> Tensor:
    """The sums of products over pairs of axes."""

def threshold(x: Any, threshold: Any, value: Any) -> Tensor:
    """`x` where it is greater than `threshold`, else `value`."""

def tile(x: Any, dims: Any) -> Tensor:
    """The tensor repeated `dims[i]` times along axis i, counted from the last axis if `dims` is shorter."""

def topk(
    x: Any, k: int, axis: int = ..., largest: bool = ..., sorted: bool = ..., *, dim: Any = ...
) -> SelectionResult:
    """The `k` largest (or smallest) elements along `axis` and their positions (int64), always in order."""

def trace(x: Any, offset: int = ..., *, dtype: Any = ...) -> Tensor:
    """The sum of diagonal number `offset` of the matrices in the last two axes. Integers sum in 64 bits, or all in `dtype`."""

def transpose(x: Any, axis0: int = ..., axis1: int = ..., *, dim0: Any = ..., dim1: Any = ...) -> Tensor:
    """The tensor with two axes exchanged, the last two by default. Returns a view."""

def trapezoid(y: Any, x: Any = ..., *, dx: Any = ..., axis: int = ..., dim: Any = ...) -> Tensor:
    """Integral of `y` along `axis` by the trapezoidal rule, over coordinates `x` or steps of `dx` (1 by default)."""

def trapz(y: Any, x: Any = ..., *, dx: Any = ..., axis: int = ..., dim: Any = ...) -> Tensor:
    """Integral of `y` along `axis` by the trapezoidal rule, over coordinates `x` or steps of `dx` (1 by default)."""

def tril(x: Any, diagonal: int = ..., *, k: Any = ...) -> Tensor:
    """The elements on and below diagonal number `diagonal` of the last two axes; zeros above."""

def triu(x: Any, diagonal: int = ..., *, k: Any = ...) -> Tensor:
    """The elements on and above diagonal number `diagonal` of the last two axes; zeros below."""

def true_divide(x: Any, y: Any) -> Tensor:
    """Quotient `x / y`, floating point also for integers."""

def trunc(x: Any) -> Tensor:
    """`x` without its fraction."""

def truncating_divide(x: Any, y: Any) -> Tensor:
    """Integer quotient rounded towards zero, as in C."""

def unbind(x: Any, axis: int = ..., *, dim: Any = ...) -> tuple[Tensor, ...]:
    """The slices along an axis, without it. Returns a view."""

def unflatten(x: Any, axis: int, sizes: Any, *, dim: Any = ...) -> Tensor:
    """The tensor with one axis made several of lengths `sizes`, where one may be -1. Returns a view."""

def unique(
    x: Any, sorted: bool = ..., return_inverse: bool = ..., return_counts: bool = ..., dim: int | None = ...
) -> Tensor:
    """The distinct elements of `x`, or slices along `dim`, always sorted. Each NaN counts as another."""

def unique_all(x: Any) -> UniqueAll:
    """The distinct elements in order, where each occurs first, the number of each element among them, and counts."""

def unique_consecutive(x: Any, return_inverse: bool = ..., return_counts: bool = ..., dim: int | None = ...) -> Tensor:
    """`x`, flat or along `dim`, with one of each run of equal elements or slices; see `unique` for the other results."""

def unique_counts(x: Any) -> UniqueCounts:
    """The distinct elements in order, and how often each occurs (int64). Raises CaptureError in a captured step."""

def unique_inverse(x: Any) -> UniqueInverse:
    """The distinct elements in order, and the number of each element among them (int64), in the shape of `x`."""

def unique_values(x: Any) -> Tensor:
    """The distinct elements in order. Raises CaptureError in a captured step."""

def unravel_index(indices: Any, shape: Any) -> tuple[Tensor, ...]:
    """The numbers (int64) along each axis of `shape` of elements at row-major positions. Compare `torch.unravel_index`."""

def unsqueeze(x: Any, axis: int, *, dim: Any = ...) -> Tensor:
    """The tensor with a new axis of length 1 at position `axis`. Returns a view."""

def unstack(x: Any, axis: int = ..., *, dim: Any = ...) -> tuple[Tensor, ...]:
    """The slices along an axis, without it. Returns a view."""

def vander(x: Any, N: int | None = ..., increasing: bool = ...) -> Tensor:
    """The matrix whose columns are powers of a vector, from the highest, N - 1, to 0 unless `increasing`."""

def var(
    x: Any,
    axis: Any = ...,
    unbiased: Any = ...,
    keepdims: bool = ...,
    *,
    correction: float | None = ...,
    dim: Any = ...,
    keepdim: Any = ...,
) -> Tensor:
    """Variance over `axis`, divided by n - `correction`, which is 0 by default."""

def var_mean(
    x: Any, dim: Any = ..., unbiased: Any = ..., keepdim: bool = ..., *, correction: float | None = ...
) -> tuple[Tensor, ...]:
    """Variance and mean over `dim`, with PyTorch's arguments: `correction` is 1 by default."""

def vdot(x: Any, y: Any) -> Tensor:
    """The sum of the products of two vectors' elements; the first vector is conjugated."""

def vecdot(x: Any, y: Any, axis: int = ..., *, dim: Any = ...) -> Tensor:
    """The sum along `axis` of the products of `x`, conjugated where it is complex, and `y`; the other axes broadcast."""

def view_as(x: Any, other: Any) -> Tensor:
    """The tensor reshaped to the shape of another."""

def view_as_complex(x: Any) -> Tensor:
    """The complex numbers whose parts are the two elements of the last axis of `x` (..., 2). Returns a view."""

def view_as_real(x: Any) -> Tensor:
    """Both parts of complex numbers along a new last axis of length 2. Returns a copy."""

def vsplit(x: Any, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """The tensor cut along its first axis; as `tensor_split`. Returns a view."""

def vstack(xs: Any) -> Tensor:
    """Tensors joined along their first axis, vectors as rows."""

def where(condition: Any, x: Any = ..., y: Any = ...) -> Tensor:
    """`x` where `condition` is true, else `y`; with the condition alone, where it is true, as `nonzero`."""

def xlogy(x: Any, y: Any) -> Tensor:
    """`x * log(y)`, and 0 where `x` is 0."""
