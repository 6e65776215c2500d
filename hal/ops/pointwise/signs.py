"""Signs, fractions and tests of floating-point numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Names, OnHost, Sample, Tolerance, Trait, declare, first_tensor, flat_in
from polyhal.hal.ops.pointwise.arithmetic import abs_
from polyhal.hal.ops.pointwise.constant import zeros
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import spread
from polyhal.hal.ops.pointwise.exponential import exp2
from polyhal.hal.ops.pointwise.logic import equal, less, logical_or, not_equal
from polyhal.hal.ops.pointwise.rounding import trunc
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.schema import Output, Specs
from polyhal.hal.ops.tensor_like import TensorLike

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _signbit(x: TensorLike) -> Any:
    if x.dtype.kind != "float":
        return less(x, 0)
    # 1/x distinguishes -0 from 0, which a comparison does not.
    return logical_or(less(x, 0.0), less(1.0 / x, 0.0))


signbit = elementwise(
    "signbit",
    lambda x: np.signbit(x) if np.asarray(x).dtype.kind == "f" else np.less(x, 0),
    "True where `x` is negative or -0; of a NaN, no promise.",
    result=dtypes.bool_,
    decompose=_signbit,
    samples=lambda rng: [Sample((rng.uniform(-4, 4, (33,)),)), Sample((np.array([0.0, -0.0, np.inf, -np.inf]),))],
    dtypes=(dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8),
    traits=Trait.CHEAP,
)


def _copysign(x: TensorLike, y: TensorLike) -> Any:
    return where(signbit(y), -abs_(x), abs_(x))


def _copysign_gradient(g: TensorLike, x: TensorLike, out: TensorLike) -> Any:
    return where(equal(x, 0.0), 0.0, where(equal(x, out), g, -g))


copysign = elementwise(
    "copysign",
    np.copysign,
    "The magnitude of `x` with the sign of `y`.",
    promotion="float",
    decompose=_copysign,
    gradient=(flat_in("x")(_copysign_gradient), lambda y_spec: zeros(y_spec)),
    samples=lambda rng: [
        Sample((rng.uniform(-4, 4, (4, 1)), rng.choice([-1.0, 1.0], (4, 3)) * rng.uniform(0.5, 2, (4, 3)))),
        Sample((rng.uniform(-4, 4, (5,)), -2.0)),
        Sample((np.array([0.0, -0.0, np.inf, 1.0]), np.array([-0.0, 0.0, -np.inf, -0.0])), special=True),
    ],
    tolerance=Tolerance(0.0),
    traits=Trait.CHEAP,
)


def _of_infinity(name: str, value: float, doc: str) -> None:
    elementwise(
        name,
        lambda x: np.equal(x, value),
        doc,
        result=dtypes.bool_,
        decompose=lambda x: equal(x, value) if x.dtype.kind == "float" else not_equal(x, x),
        samples=spread(-4.0, 4.0),
        dtypes=(dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int32),
        traits=Trait.CHEAP,
    )


_of_infinity("isposinf", math.inf, "True where `x` is positive infinity.")
_of_infinity("isneginf", -math.inf, "True where `x` is negative infinity.")

frac = elementwise(
    "frac",
    lambda x: x - np.trunc(x),
    "The fraction of `x`, with its sign.",
    promotion="float",
    decompose=lambda x: x - trunc(x),
    gradient=lambda g: g,
    samples=spread(-4.0, 4.0, *range(-4, 5)),
    traits=Trait.CHEAP,
)
heaviside = elementwise(
    "heaviside",
    lambda x, values: np.where(np.equal(x, 0), values, np.greater(x, 0)),
    "1 where `x` is positive, `values` where it is 0, else 0.",
    decompose=lambda x, values: where(equal(x, 0), values, less(0, x).cast(dtype=x.dtype)),
    gradient=(lambda x_spec: zeros(x_spec), lambda values_spec: zeros(values_spec)),
    samples=lambda rng: [
        Sample((rng.integers(-1, 2, (4, 5)), rng.integers(-4, 4, (5,))), differentiable=False),
        Sample((np.array([-1.5, 0.0, 2.0, -0.0]), np.array([7.0, 7.0, 7.0, 8.0])), differentiable=False),
    ],
    traits=Trait.CHEAP,
)
nextafter = elementwise(
    "nextafter",
    lambda x, y: np.nextafter(x, y),
    "The next floating-point number after `x` in the direction of `y`.",
    promotion="float",
    gradient=(lambda g, x, y: where(equal(x, y), 0.0, g), lambda y_spec: zeros(y_spec)),
    on_host="it steps through the bits of numbers, which no op reinterprets",
    samples=lambda rng: [
        Sample((rng.uniform(-4, 4, a), rng.uniform(-4, 4, b)), differentiable=False)
        for a, b in [((33,), (33,)), ((4, 1, 5), (3, 1))]
    ],
    dtypes=(dtypes.float32, dtypes.float64),
    tolerance=Tolerance(1.0),
)


def _frexp_infer(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    return [(dtypes.to_float(spec.dtype), spec.shape), (dtypes.int32, spec.shape)]


frexp = declare(
    lambda x: np.frexp(np.asarray(x, np.float64)),
    name="frexp",
    doc="Mantissa in [0.5, 1) with the sign of `x`, and integer exponent: `x = mantissa * 2 ** exponent`.",
    family="special",
    infer=_frexp_infer,
    outputs=("mantissa", "exponent"),
    lowering=OnHost("it takes numbers apart into bits, which no op reinterprets"),
    gradient=lambda g, exponent: g * exp2(-exponent.cast(dtype=g.dtype)),
    samples=lambda rng: [
        Sample((rng.uniform(-9, 9, (3, 5)),)),
        Sample((np.array([0.0, -0.0, 1.0, 1e-30]),), special=True),
    ],
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(1.0),
    names=Names(aten=".Tensor"),
)
