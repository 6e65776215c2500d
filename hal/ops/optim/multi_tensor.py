"""Ops over lists of tensors: the constructor of the family, norms, and the gradient ops that clip and unscale.

One op updates all parameters of an optimizer, so that a backend can do so in one launch; compare PyTorch's
`_foreach` and fused optimizer ops. The one variadic input holds the tensors group by group, then the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    OpFunction,
    Output,
    Params,
    PartOfCall,
    Sample,
    Samples,
    Schema,
    Specs,
    Tolerance,
    Trait,
    declare,
    tensors,
)
from polyhal.hal.ops.layout.creation import broadcast_scalar
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.exponential import sqrt
from polyhal.hal.ops.pointwise.foreach_elementwise import filled_rows
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
    without_empty: Callable[[Specs, Params], PartOfCall | None] | None = None,
    traits: Trait = Trait.NONE,
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
        traits=Trait.INPLACE | traits,
        autocast=autocast,
        public=False,
        samples=samples,
        dtypes=(dtypes.float32, dtypes.float64),
        tolerance=tolerance or Tolerance(16.0, floor=1.0),
        without_empty=without_empty,
    )


def draw(rng: np.random.Generator) -> list[Any]:
    """One array per sample parameter."""
    return [rng.uniform(-1, 1, s) for s in SHAPES]


def _without_empty(*, shared: int, of_each: bool, of_all: int = 0) -> Callable[[Specs, Params], PartOfCall]:
    """Return the rule of an op on one list and `shared` inputs: its outputs are one of each tensor, then `of_all` of all."""

    def part(specs: Specs, params: Params) -> PartOfCall:
        count = len(specs) - shared
        filled, inputs = filled_rows(specs, 1, count)
        first = count if of_each else 0
        return PartOfCall(inputs, (*(filled if of_each else ()), *range(first, first + of_all)), params)

    return part


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
    without_empty=_without_empty(shared=0, of_each=False, of_all=1),
)


def _norms(*xs: Any) -> Any:
    """The Euclidean norm of each tensor, as a vector in float32."""
    return np.array([np.sqrt(np.sum(np.square(np.asarray(x, np.float64)))) for x in xs], np.float32)


def _norms_decomposed(*xs: Any) -> Any:
    filled = [x for x in xs if x.spec.size]
    if 0 < len(filled) < len(xs):
        found, zero = norms(filled), broadcast_scalar(0.0, (1,), dtypes.float32)
        ends = accumulate(int(x.spec.size > 0) for x in xs)
        parts = [slice_(found, (n - 1,), (1,), (1,)) if x.spec.size else zero for x, n in zip(xs, ends, strict=True)]
        return concat(parts, 0)
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
    without_empty=_without_empty(shared=1, of_each=True),
    traits=Trait.POINTWISE_ON_EACH,
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
    without_empty=_without_empty(shared=1, of_each=True, of_all=1),
)


def groups_of(xs: Sequence[Any], count: int, groups: int) -> list[Sequence[Any]]:
    """The first `groups` times `count` inputs, group by group."""
    return [xs[i * count : (i + 1) * count] for i in range(groups)]
