"""Three-operand arithmetic: interpolation, and products and quotients added to a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Names, Sample, Tolerance, Trait
from polyhal.hal.ops.pointwise.arithmetic import abs_
from polyhal.hal.ops.pointwise.elementwise import elementwise
from polyhal.hal.ops.pointwise.logic import less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import TensorLike


def _samples(rng: np.random.Generator) -> list[Sample]:
    def divisor(shape: tuple[int, ...]) -> Any:
        return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 2.0, shape)

    shapes: list[tuple[tuple[int, ...], ...]] = [((33,), (33,), (33,)), ((4, 1), (3,), (4, 3)), ((2, 3), (), (3,))]
    return [
        Sample((rng.uniform(-2, 2, a), rng.uniform(-2, 2, b), divisor(c)), {"value": v})
        for (a, b, c), v in zip(shapes, (1, -0.5, 2), strict=True)
    ]


def _lerp_samples(rng: np.random.Generator) -> list[Sample]:
    shapes: list[tuple[tuple[int, ...], ...]] = [((33,), (33,), (33,)), ((4, 1), (3,), (4, 3))]
    tensors = [Sample(tuple(rng.uniform(-2, 2, s) for s in three)) for three in shapes]
    return [*tensors, Sample((rng.uniform(-2, 2, (5,)), rng.uniform(-2, 2, (5,)), 0.75))]


addcmul = elementwise(
    "addcmul",
    lambda x, tensor1, tensor2, *, value=1: x + value * tensor1 * tensor2,
    "`x + value * tensor1 * tensor2`.",
    promotion="numeric",
    decompose=lambda x, tensor1, tensor2, *, value: x + tensor1 * value * tensor2,
    gradient=(
        lambda g: g,
        lambda g, tensor2, *, value: g * (tensor2 * value),
        lambda g, tensor1, *, value: g * (tensor1 * value),
    ),
    samples=_samples,
    tolerance=Tolerance(4.0, floor=8.0),
    dtypes=dtypes.FLOATS,
    traits=Trait.CHEAP,
    names=Names(in_place=True, aten=".default"),
)
addcdiv = elementwise(
    "addcdiv",
    lambda x, tensor1, tensor2, *, value=1: x + value * (tensor1 / tensor2),
    "`x + value * tensor1 / tensor2`.",
    promotion="float",
    decompose=lambda x, tensor1, tensor2, *, value: x + tensor1 / tensor2 * value,
    gradient=(
        lambda g: g,
        lambda g, tensor2, *, value: g * value / tensor2,
        lambda g, tensor1, tensor2, *, value: -g * (tensor1 * value) / (tensor2 * tensor2),
    ),
    samples=_samples,
    tolerance=Tolerance(6.0, floor=8.0),
    traits=Trait.CHEAP,
    names=Names(in_place=True),
)


def _lerp(x: TensorLike, end: TensorLike, weight: TensorLike) -> Any:
    """From the nearer end, so that both ends are met exactly."""
    difference = end - x
    return where(less(abs_(weight), 0.5), x + weight * difference, end - difference * (1.0 - weight))


lerp = elementwise(
    "lerp",
    lambda x, end, weight: np.where(np.abs(weight) < 0.5, x + weight * (end - x), end - (end - x) * (1 - weight)),
    "`x + weight * (end - x)`, exact at both ends.",
    promotion="float",
    decompose=_lerp,
    gradient=(
        lambda g, weight: g * (1.0 - weight),
        lambda g, weight: g * weight,
        lambda g, x, end: g * (end - x),
    ),
    samples=_lerp_samples,
    tolerance=Tolerance(4.0, floor=8.0),
    traits=Trait.CHEAP,
    names=Names(in_place=True),
)
