"""`rotary`: pairs of features rotated by angles that depend on the position."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, broadcast_shapes
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.layout.regions import concat, stack
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape, sum_to
from polyhal.hal.ops.tensor_like import Array


def _rotary(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Any:
    """`x` (..., L, D) with pairs of features rotated by angles, given as cosines and sines (..., L, D/2).

    Feature i is paired with feature i + D/2, or with its neighbour if `interleaved`. Source: Su et al., arXiv:2104.09864.
    """
    x = np.asarray(x)
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    turned = a * cos - b * sin, b * cos + a * sin
    return np.stack(turned, -1).reshape(x.shape) if interleaved else np.concatenate(turned, -1)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, cos, sin = (tensor_at(specs, i) for i in range(3))
    if x.ndim < 2 or x.shape[-1] % 2 or not all(s.dtype.is_floating_point for s in (x, cos, sin)):
        raise ValueError(f"x {x}, cos {cos}, sin {sin}; expected floats, with an even number of features")
    pairs = (*x.shape[:-1], x.shape[-1] // 2)
    if cos.shape != sin.shape or broadcast_shapes(cos.shape, pairs) != pairs:
        raise ValueError(f"cosines {cos.shape} and sines {sin.shape}; expected shapes that broadcast to {pairs}")
    params["interleaved"] = bool(params["interleaved"])
    return [(x.dtype, x.shape)]


def _halves(x: Any, interleaved: bool) -> tuple[Any, Any]:
    """Return the first and the second feature of each pair (..., D/2)."""
    half, zeros, ones = x.shape[-1] // 2, (0,) * (x.ndim - 1), (1,) * (x.ndim - 1)
    step, second = (2, 1) if interleaved else (1, half)
    a, b = (slice_(x, (*zeros, first), (*x.shape[:-1], half), (*ones, step)) for first in (0, second))
    return a, b


def _decomposed(x: Any, cos: Any, sin: Any, *, interleaved: bool) -> Any:
    cos, sin = (t if t.dtype is x.dtype else t.cast(dtype=x.dtype) for t in (cos, sin))
    a, b = _halves(x, interleaved)
    turned = [a * cos - b * sin, b * cos + a * sin]
    return reshape(stack(turned, x.ndim), x.shape) if interleaved else concat(turned, x.ndim - 1)


def _table_gradient(g: Any, x: Any, spec: Spec, interleaved: bool, is_sine: int) -> Any:
    """Return the gradient of the cosines or the sines."""
    (ga, gb), (a, b) = _halves(g, interleaved), _halves(x, interleaved)
    total = sum_to(gb * a - ga * b if is_sine else ga * a + gb * b, spec.shape)
    return total if total.dtype is spec.dtype else total.cast(dtype=spec.dtype)


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for shape, table in [
        ((2, 3, 5, 8), (5, 4)),
        ((3, 4, 2, 6), (3, 1, 2, 3)),
        ((4, 10), (4, 5)),
        ((2, 33, 64), (33, 32)),
    ]:
        for interleaved in (False, True):
            x, angles = rng.uniform(-2, 2, shape), rng.uniform(-3, 3, table)
            inputs = (x, np.cos(angles), np.sin(angles))
            out.append(Sample(inputs, {"interleaved": interleaved}))
    return out


rotary: OpFunction = declare(
    _rotary,
    name="rotary",
    family="attention",
    public=False,
    infer=_infer,
    lowering=Decompose(_decomposed),
    gradient=(
        lambda g, cos, sin, *, interleaved: rotary(g, cos, -sin, interleaved),
        lambda g, x, cos_spec, *, interleaved: _table_gradient(g, x, cos_spec, interleaved, 0),
        lambda g, x, sin_spec, *, interleaved: _table_gradient(g, x, sin_spec, interleaved, 1),
    ),
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(8.0, floor=4.0),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((2, 1)), np.zeros((2, 1))), {}, ValueError, "even number")],
)
