"""Ops over lists of tensors: the constructor of the family, norms, and the gradient ops that clip and unscale.

One op updates all parameters of an optimizer, so that a backend can do so in one launch; compare PyTorch's
`_foreach` and fused optimizer ops. The one variadic input holds the tensors group by group, then the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    OpFunction,
    Output,
    Sample,
    Samples,
    Schema,
    Specs,
    Tolerance,
    Trait,
    declare,
    tensors,
)
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.exponential import sqrt
from polyhal.hal.ops.pointwise.logic import logical_not, logical_or
from polyhal.hal.ops.pointwise.rounding import isfinite
from polyhal.hal.ops.reductions.extrema import any_
from polyhal.hal.ops.reductions.sums import sum_

SHAPES: list[tuple[int, ...]] = [(7,), (3, 5), (), (33, 2)]
"""Shapes of the parameters in samples."""


def multi_tensor(
    reference: Callable[..., Any],
    *,
    name: str,
    infer: Callable[[Specs, dict[str, Any]], list[Output]],
    decompose: Callable[..., Any],
    samples: Samples,
    mutates: bool = True,
    variadic_outputs: bool = True,
    tolerance: Tolerance | None = None,
    autocast: Autocast = Autocast.INHERIT,
    schema: Schema | None = None,
) -> OpFunction:
    """Declare an op over a list of tensors. `mutates`: the outputs replace the tensors in place."""
    return declare(
        reference,
        name=name,
        schema=schema,
        family="optimizer",
        mutates=(0,) if mutates else (),
        variadic_outputs=variadic_outputs,
        infer=infer,
        lowering=Decompose(decompose),
        traits=Trait.INPLACE,
        autocast=autocast,
        public=False,
        samples=samples,
        dtypes=(dtypes.float32, dtypes.float64),
        tolerance=tolerance or Tolerance(16.0, floor=1.0),
    )


def draw(rng: np.random.Generator) -> list[Any]:
    """One array per sample parameter."""
    return [rng.uniform(-1, 1, s) for s in SHAPES]


def _sum_of_squares(*xs: Any) -> Any:
    """The sum of the squares of all elements of all tensors, in float32."""
    return sum(np.sum(np.square(np.asarray(x, np.float64))) for x in xs)


def _sum_of_squares_decomposed(*xs: Any) -> Any:
    total = None
    for x in xs:
        wide = x if x.dtype.itemsize >= 4 else x.cast(dtype=dtypes.float32)
        squares = sum_(wide * wide)
        squares = squares if squares.dtype is dtypes.float32 else squares.cast(dtype=dtypes.float32)
        total = squares if total is None else total + squares
    return total


sum_of_squares = multi_tensor(
    _sum_of_squares,
    name="sum_of_squares",
    infer=lambda specs, params: [(dtypes.float32, ())],
    decompose=_sum_of_squares_decomposed,
    samples=lambda rng: [Sample(tuple(draw(rng)), differentiable=False)],
    mutates=False,
    variadic_outputs=False,
    tolerance=Tolerance(4.0, terms=lambda specs, params: sum(s.size for s in tensors(specs))),
    autocast=Autocast.FLOAT32,
)


def _norms(*xs: Any) -> Any:
    """The Euclidean norm of each tensor, as a vector in float32."""
    return np.array([np.sqrt(np.sum(np.square(np.asarray(x, np.float64)))) for x in xs], np.float32)


def _norms_decomposed(*xs: Any) -> Any:
    return concat([reshape(sqrt(_sum_of_squares_decomposed(x)), (1,)) for x in xs], 0)


norms = multi_tensor(
    _norms,
    name="norms",
    infer=lambda specs, params: [(dtypes.float32, (len(tensors(specs)),))],
    decompose=_norms_decomposed,
    samples=lambda rng: [
        Sample(tuple(xs), differentiable=False) for xs in ([*draw(rng), np.zeros((0, 2))], draw(rng) * 7)
    ],
    mutates=False,
    variadic_outputs=False,
    tolerance=Tolerance(4.0, terms=lambda specs, params: max(s.size for s in tensors(specs))),
    autocast=Autocast.FLOAT32,
)


def _scaled_outputs(specs: Specs) -> list[Output]:
    xs = tensors(specs)
    if len(xs) != len(specs) or xs[-1].shape != ():
        raise ValueError("expected tensors, then a tensor without axes as the factor")
    return [(s.dtype, s.shape) for s in xs[:-1]]


def _scale_all(*xs: Any) -> Any:
    """Every tensor multiplied by the last one, which has no axes."""
    return tuple(x * xs[-1] for x in xs[:-1])


scale_all = multi_tensor(
    _scale_all,
    name="scale_all",
    infer=lambda specs, params: _scaled_outputs(specs),
    decompose=lambda *xs: tuple(x * xs[-1] for x in xs[:-1]),
    samples=lambda rng: [Sample((*draw(rng), np.array(0.5)), differentiable=False)],
)


def _unscale_all(*xs: Any) -> Any:
    """Every tensor multiplied by the last one, which has no axes; and 1 if any element was infinite or NaN, else 0."""
    scaled = tuple(x * xs[-1] for x in xs[:-1])
    return (*scaled, np.float32(any(not np.isfinite(x).all() for x in xs[:-1])))


def _unscale_all_decomposed(*xs: Any) -> Any:
    *grads, scale = xs
    flags = [any_(logical_not(isfinite(x))) for x in grads]
    nonfinite = flags[0]
    for flag in flags[1:]:
        nonfinite = logical_or(nonfinite, flag)
    return (*[x * scale for x in grads], nonfinite.cast(dtype=dtypes.float32))


def _unscale_samples(rng: np.random.Generator) -> list[Sample]:
    finite = draw(rng)
    out = [Sample((*finite, np.array(0.5)), differentiable=False)]
    for value in (np.inf, -np.inf, np.nan):
        last = finite[-1].copy()
        last[-1, -1] = value
        out.append(Sample((*finite[:-1], last, np.array(0.5)), special=True))
    return out


unscale_all = multi_tensor(
    _unscale_all,
    name="unscale_all",
    infer=lambda specs, params: [*_scaled_outputs(specs), (dtypes.float32, ())],
    decompose=_unscale_all_decomposed,
    samples=_unscale_samples,
    mutates=False,
)


def groups_of(xs: Sequence[Any], count: int, groups: int) -> list[Sequence[Any]]:
    """The first `groups` times `count` inputs, group by group."""
    return [xs[i * count : (i + 1) * count] for i in range(groups)]
