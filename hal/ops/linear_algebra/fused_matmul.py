"""`fused_matmul`: a matrix product with an epilogue of pointwise ops, applied before the product is stored.

Graph passes make it. Steps are encoded as in `fused_elementwise`. Value 0 is the product; the further operands follow, then the
numbers, then the results of the steps; the last is the op's. Every step has the product's shape and dtype. The product has the
dtype of its factors, or `out_dtype`, which may be wider: a residual in float32 is added to sums that were never rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import infer, scalar_dtype
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec, contiguous
from polyhal.hal.ops.batching import BatchedCall, pointwise
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
from polyhal.hal.ops.fusion import EpiloguePattern
from polyhal.hal.ops.layout.views import permute
from polyhal.hal.ops.linear_algebra.linear import ACTIVATIONS
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.fused_elementwise import (
    GroupStep,
    call_steps,
    fused_elementwise,
    reference_steps,
    values_of,
)
from polyhal.hal.ops.tensor_like import TensorLike


def epilogue_inputs(product: Spec, specs: Specs, params: Params) -> tuple[Any, ...]:
    """Specs of the values that the steps start from: the product, the operands after the factors, and the numbers."""
    return (product, *specs[2:], *(ScalarSpec(scalar_dtype(n)) for n in params["numbers"]))


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    ((dtype, shape),) = infer(op_matmul.op, specs[:2], {"out_dtype": params["out_dtype"]})
    product = contiguous(dtype, shape)
    start = epilogue_inputs(product, specs, params)
    values = values_of(start, params["steps"])
    for value in values[len(start) :]:
        if value.shape != shape or value.dtype is not dtype:
            raise ValueError(f"a step makes {value}; expected {product}, as the product")
    return [(dtype, shape)]


def _fused_matmul(
    *xs: Any, steps: Any = (), numbers: Sequence[float] | tuple[int, ...] = (), out_dtype: Any = None
) -> Any:
    """The last of the pointwise `steps` that are applied to the product of the first two of `xs`."""
    product = op_matmul.op.reference(xs[0], xs[1], out_dtype=out_dtype)
    return reference_steps([product, *xs[2:], *numbers], steps)[-1]


def _decomposed(*xs: Any, steps: Any, numbers: Any, out_dtype: Any) -> Any:
    """Apply all steps by one op; of half precision in float32, so that results are rounded once, as by a kernel."""
    dtype, operands = out_dtype or xs[0].dtype, xs[2:]
    wide = dtypes.float32 if xs[0].dtype.itemsize == 2 else dtype
    if wide is not xs[0].dtype:
        steps = _widened(len(operands), len(numbers), steps, dtype)
    product = op_matmul(xs[0], xs[1], wide)
    last = len(operands) + len(numbers) + len(steps)
    return fused_elementwise([product, *operands, *numbers], steps, (last,))[0]


def _widened(operands: int, numbers: int, steps: Sequence[GroupStep], dtype: DType) -> tuple[GroupStep, ...]:
    """Steps with casts of the operands to float32 before them, and of the last result to `dtype` after them."""
    first = 1 + operands + numbers

    def moved(value: int | None) -> int | None:
        if value is None or (value > operands and value < first) or not value:
            return value
        return value + operands if value >= first else first + value - 1

    casts: list[GroupStep] = [("cast", (i,), (dtypes.float32,)) for i in range(1, operands + 1)]
    wide = [(name, tuple(map(moved, arguments)), params) for name, arguments, params in steps]
    return (*casts, *wide, ("cast", (first + operands + len(steps) - 1,), (dtype,)))


def _terms(specs: Specs, params: Params) -> int:
    return first_tensor(specs).shape[-1]


_BIASED: tuple[GroupStep, ...] = (("add", (0, 1), ()), ("gelu", (2,), ("tanh",)))
_SCALED_RESIDUAL: tuple[GroupStep, ...] = (("multiply", (0, 3), ()), ("add", (4, 1), ()), ("add", (5, 2), ()))
_GELU_GRAD: tuple[GroupStep, ...] = (("gelu_grad", (0, 1), ("tanh",)),)


def _linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Any:
    """The product of `linear`, whose bias is the first addend."""
    out = op_matmul(x, permute(weight, (1, 0)))
    return out if bias is None else out + bias


def _fused_linear(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    residual: TensorLike | None,
    *,
    activation: str,
    scale: float,
) -> Any:
    """The product of `fused_linear`, and its further steps."""
    out = op_matmul(x, permute(weight, (1, 0)))
    out = out if scale == 1 else out * scale
    out = ACTIVATIONS[activation](out if bias is None else out + bias)
    return out if residual is None else out + residual


def _samples(rng: np.random.Generator) -> list[Sample]:
    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape)

    out = []
    for lead, m, k, n in [((), 3, 4, 5), ((), 33, 65, 17), ((2, 3), 4, 5, 6), ((), 1, 300, 70)]:
        x, y = draw(*lead, m, k), draw(k, n)
        out += [
            Sample((x, y, draw(n)), {"steps": _BIASED, "numbers": ()}, differentiable=False),
            Sample(
                (x, y, draw(n), draw(*lead, m, n)), {"steps": _SCALED_RESIDUAL, "numbers": (0.5,)}, differentiable=False
            ),
            Sample((x, y, draw(*lead, m, n)), {"steps": _GELU_GRAD, "numbers": ()}, differentiable=False),
        ]
    gradient = {"steps": _GELU_GRAD, "numbers": ()}
    out.append(Sample((draw(2, 9, 4), draw(2, 4, 8), draw(2, 9, 8)), gradient, differentiable=False))
    return out


def _batched(call: BatchedCall) -> Any:
    """Batch the product; the operands of its steps broadcast to it."""
    return pointwise(call) if any(call.batched[:2]) else NotImplemented


def _opened(*xs: TensorLike, steps: Any, numbers: Any, out_dtype: Any) -> Any:
    """The product with its steps, which further ops of a chain follow."""
    return call_steps([op_matmul(xs[0], xs[1], out_dtype), *xs[2:], *numbers], steps)[-1]


fused_matmul = declare(
    _fused_matmul,
    name="fused_matmul",
    family="fused",
    infer=_infer,
    lowering=Decompose(_decomposed, widen=False),
    settings=("precision",),
    batching=_batched,
    fuses=EpiloguePattern(
        "matmul",
        {"linear": _linear, "fused_linear": _fused_linear, "fused_matmul": _opened},
        max_steps=8,
        max_operands=4,
    ),
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
    # A derivative or a factor of at most 2 scales the product's error.
    tolerance=Tolerance(8.0, floor=1.0, terms=_terms),
)
