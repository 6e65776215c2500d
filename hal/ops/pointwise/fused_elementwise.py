"""`fused_elementwise`: a group of pointwise ops as one op, which a backend can run as one kernel. Graph passes make it.

A step is (op, arguments, parameters): the name of a pointwise op; the indices of its operands, None for an absent one; and its
parameters in the order of its declaration. Values are numbered from 0: first the inputs, then the results of the steps. A
step promotes its operands as the op does when it is called by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import infer
from polyhal.hal.layout import Spec, broadcast_shapes, contiguous, normalize_axes
from polyhal.hal.ops.batching import BatchedCall, pointwise
from polyhal.hal.ops.declare import OPS, Decompose, Output, Params, Sample, Specs, Tolerance, Trait, declare
from polyhal.hal.ops.reductions.reduction import reduced_shape
from polyhal.hal.ops.tensor_like import TensorLike

GroupStep = tuple[str, tuple[int | None, ...], tuple[Any, ...]]
Reduction = tuple[str, tuple[int, ...], bool]
"""The name of a reduction, its axes and `keepdims`."""


def values_of(inputs: Specs, steps: Sequence[GroupStep]) -> list[Any]:
    """The spec of each value of a group, a ScalarSpec for numbers. Raises ShapeError or ValueError for invalid steps."""
    values: list[Any] = list(inputs)
    for name, arguments, params in steps:
        if Trait.POINTWISE not in OPS[name].traits:
            raise ValueError(f"{name} is no elementwise op")
        if any(a is not None and not 0 <= a < len(values) for a in arguments):
            raise ValueError(f"{name} takes values {arguments}; only {len(values)} come before it")
        op = OPS[name]
        ((dtype, shape),) = infer(op, operands(arguments, values), op.bind(params))
        values.append(contiguous(dtype, shape))
    return values


def operands(arguments: Sequence[int | None], values: Sequence[Any]) -> tuple[Any, ...]:
    """The values that a step takes as operands; None for absent ones."""
    return tuple(None if a is None else values[a] for a in arguments)


def reference_steps(xs: Sequence[Any], steps: Sequence[GroupStep]) -> list[Any]:
    """Evaluate a group by the references of its ops; returns all values."""
    values = list(xs)
    for name, arguments, params in steps:
        values.append(OPS[name].reference(*operands(arguments, values), **OPS[name].bind(params)))
    return values


def call_steps(xs: Sequence[TensorLike], steps: Sequence[GroupStep]) -> list[Any]:
    """Evaluate a group by calling its ops one after the other; returns all values."""
    values = list(xs)
    for name, arguments, params in steps:
        values.append(OPS[name].call(*operands(arguments, values), *params))
    return values


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    values = values_of(specs, params["steps"])
    results = [values[i] for i in params["results"]]
    if not all(isinstance(r, Spec) for r in results) or not results:
        raise ValueError(f"results {params['results']}; expected tensors")
    shape = broadcast_shapes(*[s.shape for s in specs if isinstance(s, Spec)])
    if any(r.shape != shape for r in results):
        raise ValueError(
            f"results of shapes {[r.shape for r in results]}; expected {shape}, that of all inputs together"
        )
    if params["reduction"] is None:
        return [(r.dtype, shape) for r in results]
    name, axes, keepdims = params["reduction"]
    if Trait.FUSIBLE_REDUCTION not in OPS[name].traits or len(results) != 1:
        raise ValueError(f"{name} of {len(results)} results; expected sum, mean, max or min of one result")
    params["reduction"] = (name, normalize_axes(axes, len(shape)), bool(keepdims))
    return infer(OPS[name], (contiguous(results[0].dtype, shape),), OPS[name].bind((axes, keepdims)))


def _fused_elementwise(*xs: Any, steps: Any = (), results: tuple[int, ...] = (), reduction: Any = None) -> Any:
    """The values `results` of a group of pointwise `steps` on `xs`, or one of them, reduced."""
    values = reference_steps(xs, steps)
    if reduction is None:
        return tuple(values[i] for i in results)
    name, axes, keepdims = reduction
    return (OPS[name].reference(values[results[0]], **OPS[name].bind((axes, keepdims))),)


def _decomposed(*xs: Any, steps: Any, results: tuple[int, ...], reduction: Any) -> Any:
    values = call_steps(xs, steps)
    if reduction is None:
        return tuple(values[i] for i in results)
    name, axes, keepdims = reduction
    return (OPS[name].call(values[results[0]], axes, keepdims),)


def _terms(specs: Specs, params: Params) -> int:
    """The number of elements that are reduced to each result."""
    if params["reduction"] is None:
        return 0
    shape = broadcast_shapes(*[s.shape for s in specs if isinstance(s, Spec)])
    whole = int(np.prod(shape, dtype=np.int64))
    results = int(np.prod(reduced_shape(shape, params["reduction"][1], True), dtype=np.int64))
    return whole // max(results, 1)


_SCALED: tuple[GroupStep, ...] = (("multiply", (0, 1), ()), ("add", (3, 2), ()), ("gelu", (4,), ("none",)))
_MIXED: tuple[GroupStep, ...] = (
    ("greater", (0, 1), ()),
    ("clip", (0, None, 2), ()),
    ("where", (3, 4, 1), ()),
    ("leaky_relu", (5,), (0.1,)),
    ("cast", (6,), (dtypes.float32,)),
)
_SQUARES: tuple[GroupStep, ...] = (("subtract", (0, 1), ()), ("square", (2,), ()))


def _samples(rng: np.random.Generator) -> list[Sample]:
    def draw(*shape: int) -> Any:
        return rng.uniform(-2, 2, shape)

    def group(steps: Any, *results: int, reduction: Any = None) -> dict[str, Any]:
        return {"steps": steps, "results": results, "reduction": reduction}

    out = [
        Sample((draw(3, 40), draw(40), draw(3, 1)), group(_SCALED, 5)),
        Sample((draw(33), draw(33), draw()), group(_SCALED, 5, 4), differentiable=False),
        Sample((draw(2, 3, 5), draw(3, 1), 0.5), group(_MIXED, 7, 5), differentiable=False),
        Sample((draw(0, 3), draw(3), draw(1)), group(_SCALED, 5), differentiable=False),
        Sample((draw(4, 70), draw(70)), group(_SQUARES, 3, reduction=("mean", (1,), True))),
    ]
    for name, axes, shape in [
        ("sum", (0, 1, 2), (3, 4, 35)),
        ("sum", (0,), (9, 70)),
        ("mean", (0, 2), (3, 5, 18)),
        ("max", (1,), (2, 7, 33)),
        ("min", (0, 1), (5, 4)),
        ("sum", (0, 1), (40, 1100)),
    ]:
        reduction = (name, axes, len(shape) == 2)
        out.append(
            Sample((draw(*shape), draw(shape[-1])), group(_SQUARES, 3, reduction=reduction), differentiable=False)
        )
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0])
    out.append(Sample((special, 1.0), group(_SQUARES, 3, reduction=("max", (0,), False)), special=True))
    return out


def _batched(call: BatchedCall) -> Any:
    """Align the axes as for a pointwise op; the axes of a reduction follow the batch."""
    if call.params["reduction"] is None:
        return pointwise(call)
    name, axes, keepdims = call.params["reduction"]
    if not isinstance(axes, tuple):
        return NotImplemented
    rank = max(call.rank(i) for i in range(len(call.inputs)))
    aligned = replace(call, params={**call.params, "reduction": (name, tuple(a % rank + 1 for a in axes), keepdims)})
    return pointwise(aligned)


fused_elementwise = declare(
    _fused_elementwise,
    name="fused_elementwise",
    family="fused",
    variadic_outputs=True,
    infer=_infer,
    lowering=Decompose(_decomposed),
    batching=_batched,
    public=False,
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(8.0, floor=1.0, terms=_terms),
)
