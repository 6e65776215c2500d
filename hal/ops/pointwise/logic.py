"""Comparisons, logical and bitwise ops."""

from __future__ import annotations

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Names, OpFunction, Sample, Trait
from polyhal.hal.ops.pointwise.elementwise import elementwise

_B = dtypes.bool_
equal = elementwise(
    "equal", np.equal, "True where `x == y`.", result=_B, traits=Trait.CHEAP | Trait.COMMUTATIVE, names=Names("eq")
)
not_equal = elementwise(
    "not_equal",
    np.not_equal,
    "True where `x != y`.",
    result=_B,
    decompose=lambda x, y: logical_not(equal(x, y)),
    traits=Trait.CHEAP | Trait.COMMUTATIVE,
    names=Names("ne"),
)
less = elementwise("less", np.less, "True where `x < y`.", result=_B, traits=Trait.CHEAP, names=Names("lt"))
greater = elementwise(
    "greater",
    np.greater,
    "True where `x > y`.",
    result=_B,
    decompose=lambda x, y: less(y, x),
    traits=Trait.CHEAP,
    names=Names("gt"),
)
less_equal = elementwise(
    "less_equal",
    np.less_equal,
    "True where `x <= y`.",
    result=_B,
    decompose=lambda x, y: logical_or(less(x, y), equal(x, y)),
    traits=Trait.CHEAP,
    names=Names("le"),
)
greater_equal = elementwise(
    "greater_equal",
    np.greater_equal,
    "True where `x >= y`.",
    result=_B,
    decompose=lambda x, y: logical_or(less(y, x), equal(x, y)),
    traits=Trait.CHEAP,
    names=Names("ge"),
)
logical_and = elementwise(
    "logical_and",
    np.logical_and,
    "True where both are non-zero.",
    promotion="bool",
    result=_B,
    traits=Trait.CHEAP | Trait.COMMUTATIVE,
)
logical_or: OpFunction = elementwise(
    "logical_or",
    np.logical_or,
    "True where either is non-zero.",
    promotion="bool",
    result=_B,
    traits=Trait.CHEAP | Trait.COMMUTATIVE,
)
logical_xor = elementwise(
    "logical_xor", np.logical_xor, "True where exactly one is non-zero.", promotion="bool", result=_B
)
logical_not: OpFunction = elementwise(
    "logical_not", np.logical_not, "True where `x` is zero.", promotion="bool", result=_B, traits=Trait.CHEAP
)


def _bit_samples(rng: np.random.Generator) -> list[Sample]:
    pairs = [((), ()), ((33,), (33,)), ((4, 1, 5), (3, 1)), ((0, 3), (1, 3))]
    return [Sample((rng.integers(0, 100, a), rng.integers(0, 100, b))) for a, b in pairs] + [
        Sample((rng.integers(0, 100, (5,)), 6))
    ]


def _shift_samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((rng.integers(0, 100, a), rng.integers(0, 7, b))) for a, b in [((33,), (33,)), ((4, 1), (3,))]]


bitwise_and = elementwise(
    "bitwise_and", np.bitwise_and, "Bits set in both.", promotion="integral", samples=_bit_samples
)
bitwise_or = elementwise("bitwise_or", np.bitwise_or, "Bits set in either.", promotion="integral", samples=_bit_samples)
bitwise_xor = elementwise(
    "bitwise_xor", np.bitwise_xor, "Bits set in exactly one.", promotion="integral", samples=_bit_samples
)
bitwise_invert = elementwise(
    "bitwise_invert",
    np.invert,
    "All bits flipped.",
    promotion="integral",
    samples=lambda rng: [Sample((rng.integers(0, 100, s),)) for s in [(), (33,), (3, 4)]],
    names=Names("bitwise_not", "numpy.invert"),
)
bitwise_left_shift = elementwise(
    "bitwise_left_shift",
    np.left_shift,
    "`x` times 2 to the power `y`, in bits.",
    promotion="integral",
    samples=_shift_samples,
    dtypes=dtypes.INTEGERS,
    names=Names("numpy.left_shift", aten="__lshift__.Tensor __lshift__.Scalar __ilshift__.Tensor __ilshift__.Scalar"),
)
bitwise_right_shift = elementwise(
    "bitwise_right_shift",
    np.right_shift,
    "`x` shifted right by `y` bits; the sign is kept.",
    promotion="integral",
    samples=_shift_samples,
    dtypes=dtypes.INTEGERS,
    names=Names("numpy.right_shift", aten="__rshift__.Tensor __rshift__.Scalar __irshift__.Tensor __irshift__.Scalar"),
)
