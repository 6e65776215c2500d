"""Functions of two numbers: extrema that ignore NaN, C's remainder, the hypotenuse, divisors and multiples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import OpFunction, Sample, Tolerance, Trait
from polyhal.hal.ops.pointwise.activation import sigmoid
from polyhal.hal.ops.pointwise.arithmetic import abs_, square
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import pairs
from polyhal.hal.ops.pointwise.exponential import exp, exp2, log1p, sqrt
from polyhal.hal.ops.pointwise.logic import equal, less_equal, logical_not, logical_or, not_equal
from polyhal.hal.ops.pointwise.promotion import in_common_dtype
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.tensor_like import TensorLike


def _ignoring_nan(wins: Any) -> tuple[Any, Any]:
    """Decomposition and gradient of the extremum in which `wins(x, y)` says that `x` is the result."""

    def first(x: TensorLike, y: TensorLike | float) -> Any:
        return logical_or(wins(x, y), not_equal(y, y))

    def gradient(g: TensorLike, x: TensorLike, y: TensorLike | float) -> Any:
        chosen = first(x, y)
        return where(chosen, g, 0), where(logical_not(chosen), g, 0)

    return lambda x, y: in_common_dtype(lambda a, b: where(first(a, b), a, b), x, y), gradient


_largest, _largest_gradient = _ignoring_nan(lambda x, y: less_equal(y, x))
_smallest, _smallest_gradient = _ignoring_nan(lambda x, y: less_equal(x, y))
fmax = elementwise(
    "fmax",
    np.fmax,
    "The larger of `x` and `y`, or the one that is not NaN.",
    decompose=_largest,
    gradient=_largest_gradient,
    samples=pairs((-4.0, 4.0), (-4.0, 4.0)),
    traits=Trait.CHEAP,
)
fmin = elementwise(
    "fmin",
    np.fmin,
    "The smaller of `x` and `y`, or the one that is not NaN.",
    decompose=_smallest,
    gradient=_smallest_gradient,
    samples=pairs((-4.0, 4.0), (-4.0, 4.0)),
    traits=Trait.CHEAP,
)


def _hypot(x: TensorLike, y: TensorLike) -> Any:
    """Scaled by the larger one, so that squares neither overflow nor underflow."""
    a, b = abs_(x), abs_(y)
    large = maximum(a, b)
    scale = where(logical_or(equal(large, 0.0), equal(large, math.inf)), 1.0, large)
    value = sqrt(square(a / scale) + square(b / scale)) * scale
    return where(logical_or(equal(a, math.inf), equal(b, math.inf)), math.inf, value)


def _hypot_gradient(g: TensorLike, x: TensorLike, out: TensorLike) -> Any:
    """The gradient of the first operand; 0 at the origin."""
    return g * (x / where(equal(out, 0.0), 1.0, out))


hypot: OpFunction = elementwise(
    "hypot",
    np.hypot,
    "`sqrt(x * x + y * y)` without overflow.",
    promotion="float",
    decompose=_hypot,
    gradient=(_hypot_gradient, lambda g, y, out: _hypot_gradient(g, y, out)),
    samples=pairs((0.3, 4.0), (-4.0, 4.0)),
    tolerance=Tolerance(6.0),
)


modulus: OpFunction = elementwise(
    "modulus",
    np.hypot,
    """The absolute values of complex numbers with the parts `x` and `y`.

    The gradient is a function of the operands, as in PyTorch: programs may overwrite the result, and hooks of the result
    run once in a second gradient.
    """,
    promotion="float",
    decompose=lambda x, y: hypot(x, y),
    gradient=(
        lambda g, x, y: _hypot_gradient(g, x, hypot(x, y)),
        lambda g, x, y: _hypot_gradient(g, y, hypot(x, y)),
    ),
    samples=pairs((0.3, 4.0), (-4.0, 4.0)),
    public=False,
    tolerance=Tolerance(6.0),
)


def _logaddexp(x: TensorLike, y: TensorLike, of_zero: float, tail: Any) -> Any:
    """max(x, y) + tail(-|x - y|); equal operands, also infinite ones, add `of_zero`."""
    same = equal(x, y)
    return maximum(x, y) + where(same, of_zero, tail(-abs_(where(same, 0.0, x - y))))


def _share(g: TensorLike, x: TensorLike, y: TensorLike | float, scale: float) -> Any:
    """The gradient of the first operand: g e^x / (e^x + e^y)."""
    return g * sigmoid(where(equal(x, y), 0.0, x - y) * scale)


logaddexp = elementwise(
    "logaddexp",
    np.logaddexp,
    "`log(exp(x) + exp(y))` without overflow.",
    promotion="float",
    decompose=lambda x, y: _logaddexp(x, y, math.log(2), lambda d: log1p(exp(d))),
    gradient=(lambda g, x, y: _share(g, x, y, 1.0), lambda g, x, y: _share(g, y, x, 1.0)),
    samples=pairs((-4.0, 4.0), (-4.0, 4.0)),
    tolerance=Tolerance(8.0, floor=1.0),
)
logaddexp2 = elementwise(
    "logaddexp2",
    np.logaddexp2,
    "`log2(2 ** x + 2 ** y)` without overflow.",
    promotion="float",
    decompose=lambda x, y: _logaddexp(x, y, 1.0, lambda d: log1p(exp2(d)) * (1 / math.log(2))),
    gradient=(lambda g, x, y: _share(g, x, y, math.log(2)), lambda g, x, y: _share(g, y, x, math.log(2))),
    samples=pairs((-4.0, 4.0), (-4.0, 4.0)),
    tolerance=Tolerance(10.0, floor=1.0),
)


def _integer_samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((rng.integers(0, 100, a), rng.integers(0, 100, b))) for a, b in [((33,), (33,)), ((4, 1), (3,))]] + [
        Sample((np.array([0, 0, 12]), np.array([0, 7, 0])))
    ]


_EUCLID = "Euclid's algorithm takes as many steps as the numbers of each element ask for"
gcd = elementwise(
    "gcd",
    np.gcd,
    "Greatest common divisor.",
    promotion="integer",
    on_host=_EUCLID,
    traits=Trait.STORES_NUMBERS,
    samples=_integer_samples,
    dtypes=(dtypes.uint8, dtypes.int32, dtypes.int64),
)
lcm = elementwise(
    "lcm",
    np.lcm,
    "Least common multiple; it wraps where the dtype does not hold it.",
    promotion="integer",
    on_host=_EUCLID,
    traits=Trait.STORES_NUMBERS,
    samples=_integer_samples,
    dtypes=(dtypes.int32, dtypes.int64),
)
