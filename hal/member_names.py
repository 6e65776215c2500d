"""Functions that a backend may offer as members beyond the required ones: names for `Capabilities.unary`, `.binary`, `.reduce`.

Each is the name of an op: `unary("tanh", x, out)` computes `polyhal.tanh`, with its dtype of the result, NaN and infinities
included. A backend that lists a name supports it in every dtype of `Capabilities.compute` that the op computes in. The
framework composes the other functions: with the required names only, tanh consists of exp, div and others. Functions with
parameters, such as `elu` and `gelu`, are not members: they are composed, or kernels of `lower`.
"""

from __future__ import annotations

OPTIONAL_UNARY: frozenset[str] = frozenset({
    # activations
    "relu", "relu6", "sigmoid", "tanh", "silu", "mish", "selu", "softplus", "softsign", "hardsigmoid", "hardswish",
    "logsigmoid", "tanhshrink",
    # powers, exponentials and logarithms
    "reciprocal", "rsqrt", "square", "exp2", "expm1", "log2", "log10", "log1p", "entr", "logit_of",
    # angles
    "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "sinc",
    # rounding, signs and tests
    "abs", "sign", "ceil", "trunc", "round", "frac", "signbit", "isnan", "isinf", "isfinite", "isposinf", "isneginf",
    # distributions and special functions
    "erf", "erfc", "erfcx", "erfinv", "lgamma", "digamma", "ndtr", "ndtri", "log_ndtr", "spherical_bessel_j0",
})  # fmt: skip
OPTIONAL_BINARY: frozenset[str] = frozenset({
    # comparisons and extrema
    "min", "fmax", "fmin", "not_equal", "greater", "greater_equal", "less_equal",
    # division, powers and signs; floor_divide and remainder round towards minus infinity, truncated_quotient towards zero
    "floor_divide", "remainder", "truncated_quotient", "fmod", "pow", "hypot", "atan2", "copysign", "heaviside",
    # logarithms and entropies
    "logaddexp", "logaddexp2", "xlogy", "xlog1py", "binary_cross_entropy",
    # gradients: of the gradient of the result, and the input or the result
    "parametric_relu", "relu_grad", "sigmoid_grad", "silu_grad", "tanh_grad",
})  # fmt: skip
OPTIONAL_REDUCE: frozenset[str] = frozenset({"min", "mean", "any", "all"})
"""`any` and `all` of bool, `mean` of floats."""
