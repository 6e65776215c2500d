"""A matrix product with elementwise ops applied to its sums before they are stored, as one op. Made by passes over graphs.

Steps are written as in `fused`. Value 0 is the product; then come the further operands, then the numbers, then the results of
steps, of which the last is the op's. Every step has the shape and the dtype of the product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dispatch import infer, scalar_dtype
from polyhal.hal.layout import ScalarSpec, Spec, contiguous
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    ErrorSample,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep, called, referred, values_of


def group_of(product: Spec, specs: Specs, params: Params) -> tuple[Any, ...]:
    """What the steps start from: the product, the operands after the factors, and the numbers."""
    return (product, *specs[2:], *(ScalarSpec(scalar_dtype(n)) for n in params["numbers"]))


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    ((dtype, shape),) = infer(op_matmul.op, specs[:2], {"out_dtype": None})
    product = contiguous(dtype, shape)
    start = group_of(product, specs, params)
    values = values_of(start, params["steps"])
    for made in values[len(start) :]:
        if made.shape != shape or made.dtype is not dtype:
            raise ValueError(f"a step makes {made}; expected {product}, as the product")
    return [(dtype, shape)]


def _fused_matmul(*xs: Any, steps: Any = (), numbers: Any = ()) -> Any:
    """The last of a group of elementwise `steps` on the product of the first two of `xs`."""
    return referred([np.matmul(xs[0], xs[1]), *xs[2:], *numbers], steps)[-1]


def _decomposed(*xs: Any, steps: Any, numbers: Any) -> Any:
    return called([op_matmul(xs[0], xs[1]), *xs[2:], *numbers], steps)[-1]


def _terms(specs: Specs, params: Params) -> int:
    return first_tensor(specs).shape[-1]


_BIASED: tuple[GroupStep, ...] = (("add", (0, 1), ()), ("gelu", (2,), ("tanh",)))
_STREAM: tuple[GroupStep, ...] = (("multiply", (0, 3), ()), ("add", (4, 1), ()), ("add", (5, 2), ()))
_SLOPE: tuple[GroupStep, ...] = (("gelu_grad", (0, 1), ("tanh",)),)


def _samples(rng: np.random.Generator) -> list[Sample]:
    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape)

    out = []
    for lead, m, k, n in [((), 3, 4, 5), ((), 33, 65, 17), ((2, 3), 4, 5, 6), ((), 1, 300, 70)]:
        x, y = draw(*lead, m, k), draw(k, n)
        out += [
            Sample((x, y, draw(n)), {"steps": _BIASED, "numbers": ()}, differentiable=False),
            Sample((x, y, draw(n), draw(*lead, m, n)), {"steps": _STREAM, "numbers": (0.5,)}, differentiable=False),
            Sample((x, y, draw(*lead, m, n)), {"steps": _SLOPE, "numbers": ()}, differentiable=False),
        ]
    slope = {"steps": _SLOPE, "numbers": ()}
    out.append(Sample((draw(2, 9, 4), draw(2, 4, 8), draw(2, 9, 8)), slope, differentiable=False))
    return out


fused_matmul = declare(
    _fused_matmul,
    name="fused_matmul",
    family="fused",
    infer=_infer,
    lowering=Decompose(_decomposed),
    settings=("precision",),
    autocast=Autocast.HALF,
    flops=lambda specs, outs, params: 2 * math.prod(outs[0].shape) * first_tensor(specs).shape[-1],
    public=False,
    samples=_samples,
    errors=[
        ErrorSample(
            (np.zeros((2, 3)), np.zeros((3, 4)), np.zeros((5, 2, 4))),
            {"steps": (("add", (0, 1), ()),), "numbers": ()},
            ValueError,
            "as the product",
        )
    ],
    dtypes=dtypes.FLOATS,
    # A slope or a factor of at most 2 passes the product's error on.
    tolerance=Tolerance(8.0, floor=1.0, terms=_terms),
)
