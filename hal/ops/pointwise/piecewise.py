"""Activation functions of a few pieces: linear ones, thresholds and shrinkage, with PyTorch's names and parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Names, OpFunction, Sample, Tolerance, Trait, flat_in
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.elementwise_samples import spread
from polyhal.hal.ops.pointwise.logic import less, less_equal, logical_and, logical_or
from polyhal.hal.ops.pointwise.selection import clip, where
from polyhal.hal.ops.tensor_like import TensorLike


def _between(g: TensorLike, x: TensorLike, low: float, high: float) -> Any:
    return where(logical_and(less(low, x), less(x, high)), g, 0)


hardtanh = elementwise(
    "hardtanh",
    lambda x, *, min_val=-1.0, max_val=1.0: np.clip(x, min_val, max_val),
    "`x` limited to [`min_val`, `max_val`]; the gradient at the bounds is 0.",
    promotion="numeric",
    decompose=lambda x, *, min_val, max_val: clip(x, min_val, max_val),
    gradient=flat_in("x")(lambda g, x, *, min_val, max_val: _between(g, x, min_val, max_val)),
    samples=spread(-3.0, 3.0, -1.0, 1.0, -0.5, 2.0, params=({}, {"min_val": -0.5, "max_val": 2.0})),
    dtypes=dtypes.FLOATS,
    traits=Trait.CHEAP,
)
relu6 = elementwise(
    "relu6",
    lambda x: np.clip(x, 0, 6),
    "`x` limited to [0, 6]. Source: Howard et al., arXiv:1704.04861.",
    promotion="numeric",
    decompose=lambda x: clip(x, 0, 6),
    gradient=flat_in("x")(lambda g, x: _between(g, x, 0, 6)),
    samples=spread(-4.0, 9.0, 0.0, 6.0),
    dtypes=dtypes.FLOATS,
    traits=Trait.CHEAP,
)
hardsigmoid = elementwise(
    "hardsigmoid",
    lambda x: np.clip(x + 3, 0, 6) / 6,
    "`(x + 3) / 6` limited to [0, 1].",
    promotion="float",
    decompose=lambda x: clip(x + 3.0, 0.0, 6.0) / 6.0,
    gradient=flat_in("x")(lambda g, x: where(logical_and(less(-3.0, x), less(x, 3.0)), g * (1 / 6), 0.0)),
    samples=spread(-5.0, 5.0, -3.0, 3.0),
    tolerance=Tolerance(4.0, floor=1.0),
    traits=Trait.CHEAP,
)
hardswish = elementwise(
    "hardswish",
    lambda x: x * (np.clip(x + 3, 0, 6) / 6),
    "`x * hardsigmoid(x)`. Source: Howard et al., arXiv:1905.02244.",
    promotion="float",
    decompose=lambda x: x * (clip(x + 3.0, 0.0, 6.0) / 6.0),
    gradient=lambda g, x: where(less_equal(x, -3.0), 0.0, where(less_equal(3.0, x), g, g * (x * (1 / 3) + 0.5))),
    samples=spread(-5.0, 5.0, -3.0, 3.0),
    tolerance=Tolerance(4.0, floor=1.0),
    traits=Trait.CHEAP,
)
hardshrink = elementwise(
    "hardshrink",
    lambda x, *, lambd=0.5: np.where((x >= -lambd) & (x <= lambd), 0, x),
    "`x` outside [-`lambd`, `lambd`], else 0.",
    promotion="float",
    decompose=lambda x, *, lambd: where(logical_and(less_equal(-lambd, x), less_equal(x, lambd)), 0.0, x),
    gradient=flat_in("x")(lambda g, x, *, lambd: where(logical_or(less(x, -lambd), less(lambd, x)), g, 0.0)),
    samples=spread(-3.0, 3.0, -0.5, 0.5),
    traits=Trait.CHEAP,
    names=Names(aten=".default"),
)
softshrink = elementwise(
    "softshrink",
    lambda x, *, lambd=0.5: np.where(x > lambd, x - lambd, np.where(x < -lambd, x + lambd, x * 0)),
    "`x` moved towards 0 by `lambd`; 0 within [-`lambd`, `lambd`].",
    promotion="float",
    decompose=lambda x, *, lambd: where(less(lambd, x), x - lambd, where(less(x, -lambd), x + lambd, x * 0.0)),
    gradient=flat_in("x")(lambda g, x, *, lambd: where(logical_or(less(lambd, x), less(x, -lambd)), g, 0.0)),
    samples=spread(-3.0, 3.0, -0.5, 0.5),
    traits=Trait.CHEAP,
    names=Names(aten=".default"),
)
threshold = elementwise(
    "threshold",
    lambda x, *, threshold, value: np.where(x <= threshold, value, x),
    "`x` where it is greater than `threshold`, else `value`.",
    promotion="numeric",
    decompose=lambda x, *, threshold, value: where(less_equal(x, threshold), value, x),
    gradient=flat_in("x")(lambda g, x, *, threshold: where(less_equal(x, threshold), 0, g)),
    samples=spread(-3.0, 3.0, 0.5, params=({"threshold": 0.5, "value": -2.0},)),
    dtypes=dtypes.FLOATS,
    traits=Trait.CHEAP,
    names=Names(aten=".default"),
)
parametric_relu: OpFunction = elementwise(
    "parametric_relu",
    lambda x, slope: np.where(x > 0, x, x * slope),
    "`x` if positive, else `slope * x`.",
    promotion="float",
    decompose=lambda x, slope: where(less(0.0, x), x, x * slope),
    gradient=(
        flat_in("x")(lambda g, x, slope: where(less(0.0, x), g, g * slope)),
        lambda g, x: where(less(0.0, x), 0.0, g * x),
    ),
    samples=lambda rng: [
        Sample((rng.choice([-1.0, 1.0], shape) * rng.uniform(0.1, 3.0, shape), rng.uniform(-1.0, 1.0, other)))
        for shape, other in [((33,), (33,)), ((4, 3, 5), (3, 1)), ((7,), ())]
    ],
    traits=Trait.CHEAP,
    public=False,
)
