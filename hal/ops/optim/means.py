"""Means along one axis of each of many tensors: the factored moments of Adafactor."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.dtypes import accumulator
from polyhal.hal.errors import ShapeError
from polyhal.hal.ops.declare import REQUIRED, Output, Sample, Schema, Specs, Tolerance, tensors
from polyhal.hal.ops.optim.multi_tensor import multi_tensor
from polyhal.hal.ops.pointwise.cast import in_dtype
from polyhal.hal.ops.reductions.sums import mean

_SHAPES: list[tuple[int, ...]] = [(3, 5), (2, 7, 4), (33, 65), (1, 9)]


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    xs, axes = tensors(specs), params["axes"]
    if len(xs) != len(axes) or any(not -x.ndim <= a < 0 or not x.shape[a] for x, a in zip(xs, axes, strict=False)):
        problem = f"axes {axes} of shapes {[x.shape for x in xs]}"
        raise ShapeError(f"{problem}; expected a negative axis of one element or more for each tensor")
    return [
        (accumulator(x.dtype), (*x.shape[:a], 1, *(x.shape[a + 1 :] if a < -1 else ())))
        for x, a in zip(xs, axes, strict=True)
    ]


def _means_along(*xs: Any, axes: Any = (), square: bool = False) -> Any:
    """The mean of the elements, or of their squares, along one axis of each tensor, in at least float32; the axis is kept."""
    return tuple(np.mean(x * x if square else x, axis=a, keepdims=True) for x, a in zip(xs, axes, strict=True))


def _decomposed(*xs: Any, axes: Any, square: bool) -> Any:
    wide = [in_dtype(x, accumulator(x.dtype)) for x in xs]
    return tuple(mean(x * x if square else x, (a,), True) for x, a in zip(wide, axes, strict=True))


means_along = multi_tensor(
    _means_along,
    name="means_along",
    schema=Schema(("xs",), variadic=True, params={"axes": REQUIRED, "square": False}, variadic_outputs=True),
    infer=_infer,
    decompose=_decomposed,
    samples=lambda rng: [
        Sample(tuple(rng.uniform(-1, 1, s) for s in _SHAPES), {"axes": axes, "square": square}, differentiable=False)
        for axes, square in (((-1, -2, -1, -2), True), ((-2, -1, -2, -1), False), ((-2, -3, -2, -1), True))
    ],
    mutates=False,
    tolerance=Tolerance(4.0, floor=1.0, terms=lambda specs, params: max(max(s.shape) for s in tensors(specs))),
)
