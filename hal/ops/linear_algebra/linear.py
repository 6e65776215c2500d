"""Linear layers: `linear` with its weight gradient, and `fused_linear` with activation and residual."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.batching import BatchedCall
from polyhal.hal.ops.declare import (
    OPS,
    Autocast,
    Decompose,
    ErrorSample,
    Names,
    Output,
    Sample,
    Specs,
    Tolerance,
    declare,
    reads,
    tensor_at,
)
from polyhal.hal.ops.layout.axes import transpose
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.linear_algebra.matmul import as_rows, factors, inner_length, op_matmul, sum_dtype
from polyhal.hal.ops.pointwise import activation as activations
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.pointwise.trigonometry import tanh
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def _linear(x: Array, weight: Array, bias: Array | None = None) -> Any:
    """`x @ weight.T + bias`: x (..., in), weight (out, in), bias (out,)."""
    out = np.matmul(x, np.swapaxes(weight, 0, 1))
    return out if bias is None else out + bias


def _infer_linear(specs: Specs, params: Params) -> list[Output]:
    x, weight = factors(specs)
    if x.ndim < 1 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"x {x.shape} does not fit weight {weight.shape}; expected (..., {weight.shape[-1]}) and (out, in)"
        )
    bias = specs[2]
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias {bias.shape} does not fit weight {weight.shape}; expected ({weight.shape[0]},)")
    return [(dtypes.promote(x.dtype, weight.dtype), (*x.shape[:-1], weight.shape[0]))]


def _linear_decomposed(x: TensorLike, weight: TensorLike, bias: TensorLike | None) -> Any:
    out = op_matmul(as_rows(x), permute(weight, (1, 0)))
    if bias is not None:
        out = out + bias
    return reshape(out, (*x.shape[:-1], weight.shape[0]))


@reads(x="weight", weight="x", bias="")
def _linear_gradient(
    g: TensorLike, x: TensorLike | None, weight: TensorLike | None, x_spec: Spec, needs: tuple[bool, ...]
) -> Any:
    rows = as_rows(g)
    dx = reshape(op_matmul(rows, weight), x_spec.shape) if needs[0] else None
    columns = as_rows(x) if needs[1] else None
    biased = len(needs) > 2 and needs[2]
    if needs[1] and biased:
        return (dx, *linear_weight_grad(rows, columns))
    return dx, _weight_gradient(rows, columns) if needs[1] else None, sum_(rows, 0) if biased else None


def _weight_gradient(g: TensorLike, x: TensorLike | None) -> Any:
    return op_matmul(permute(g, (1, 0)), x)


def _linear_weight_grad(grad: Array, x: Array, *, out_dtype: Any = None) -> Any:
    """Gradients of the weight (out, in) and the bias (out,) of `linear`, given `grad` (rows, out) and x (rows, in).

    `out_dtype` makes them wider than the operands, as that of `matmul`.
    """
    if out_dtype is not None:
        grad, x = np.asarray(grad).astype(np.float64), np.asarray(x).astype(np.float64)
    return np.matmul(np.swapaxes(grad, 0, 1), x), np.sum(grad, axis=0)


def _infer_linear_weight_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    g, x = factors(specs)
    if g.ndim != 2 or x.ndim != 2 or g.shape[0] != x.shape[0]:
        raise ValueError(f"grad {g.shape} and x {x.shape}; expected (rows, out) and (rows, in)")
    weight, bias = (sum_dtype(d, params) for d in (dtypes.promote(g.dtype, x.dtype), g.dtype))
    return [(weight, (g.shape[1], x.shape[1])), (bias, g.shape[1:])]


def _linear_weight_grad_decomposed(grad: TensorLike, x: TensorLike, *, out_dtype: Any) -> Any:
    wide = grad if out_dtype is None else cast(grad, dtype=out_dtype)
    return op_matmul(permute(grad, (1, 0)), x, out_dtype), sum_(wide, 0)


def _linear_weight_grad_samples(rng: np.random.Generator) -> list[Sample]:
    shapes = [(3, 4, 5), (1, 7, 2), (0, 3, 4), (65, 33, 17), (300, 10, 70), (130, 64, 96)]
    return [Sample((rng.uniform(-1, 1, (k, m)), rng.uniform(-1, 1, (k, n)))) for k, m, n in shapes]


linear_weight_grad = declare(
    _linear_weight_grad,
    name="linear_weight_grad",
    family="contraction",
    public=False,
    infer=_infer_linear_weight_grad,
    outputs=("out", "bias"),
    # Both accumulate in float32 anyway, and halves may run on matrix units.
    lowering=Decompose(_linear_weight_grad_decomposed, widen=False),
    samples=_linear_weight_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, floor=1.0, terms=lambda specs, params: tensor_at(specs, 0).shape[0]),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((4, 2))), {}, ValueError, "expected \\(rows, out\\)")],
    flops=lambda specs, outs, params: 2 * outs[0].size * tensor_at(specs, 0).shape[0],
    settings=("precision",),
    autocast=Autocast.HALF,
)


def _linear_samples(rng: np.random.Generator) -> list[Sample]:
    shapes = [((3, 4), 5), ((2, 3, 4), 7), ((4,), 3), ((0, 4), 5), ((2, 3, 0), 4), ((33, 65), 17)]
    return [
        Sample((rng.uniform(-1, 1, s), rng.uniform(-1, 1, (n, s[-1])), rng.uniform(-1, 1, (n,)) if bias else None))
        for s, n in shapes
        for bias in (True, False)
    ]


def _batched_linear(call: BatchedCall) -> Any:
    """A batch of inputs is a further axis of them; batched weights take a product of batches of matrices."""
    if not any(call.batched[1:]):
        return call.apply(*call.inputs)
    if not call.batched[1] or not call.rank(0):
        return NotImplemented
    bias = call.inputs[2]
    out = _batched_product(call)
    return out if bias is None else out + _beside_rows(call, bias, out)


def _batched_product(call: BatchedCall) -> Any:
    """The product of inputs (batch, ..., in) with weights (batch, out, in)."""
    *lead, inner = call.shape(0)
    rows = reshape(call.expanded(0), (call.size, math.prod(lead), inner))
    out = op_matmul(rows, transpose(call.inputs[1]))
    return reshape(out, (call.size, *lead, out.shape[-1]))


def _beside_rows(call: BatchedCall, bias: Any, out: Any) -> Any:
    """The biases of a batch, in a shape that broadcasts to its results."""
    return reshape(bias, (call.size, *(1,) * (out.ndim - 2), out.shape[-1])) if call.batched[2] else bias


linear = declare(
    _linear,
    name="linear",
    family="contraction",
    infer=_infer_linear,
    lowering=Decompose(_linear_decomposed),
    batching=_batched_linear,
    gradient=_linear_gradient,
    samples=_linear_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, terms=inner_length),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((4, 2))), {}, ValueError, "does not fit")],
    flops=lambda specs, outs, params: 2 * outs[0].size * tensor_at(specs, 0).shape[-1],
    settings=("precision",),
    autocast=Autocast.HALF,
    names=Names(aten=".default"),
)


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "relu": activations.relu,
    "gelu": activations.gelu,
    "gelu_tanh": lambda x: activations.gelu(x, approximate="tanh"),
    "silu": activations.silu,
    "sigmoid": activations.sigmoid,
    "tanh": tanh,
}
"""The functions for `activation`, by its values."""


def _fused_linear(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    *,
    activation: str = "none",
    scale: float = 1.0,
) -> Any:
    """`activation(scale * x @ weight.T + bias) + residual`: x (..., in), weight (out, in), bias (out,), residual (..., out)."""
    out = np.matmul(x, np.swapaxes(weight, 0, 1)) * scale
    out = out if bias is None else out + bias
    if activation == "relu":
        out = np.maximum(out, 0)
    elif activation == "tanh":
        out = np.tanh(out)
    elif activation == "gelu":
        out = OPS["gelu"].reference(out, approximate="none")
    elif activation == "gelu_tanh":
        out = OPS["gelu"].reference(out, approximate="tanh")
    elif activation != "none":
        out = OPS[activation].reference(out)
    return out if residual is None else out + residual


def _infer_fused_linear(specs: Specs, params: dict[str, Any]) -> list[Output]:
    ((dtype, shape),) = _infer_linear(specs[:3], params)
    residual = specs[3]
    if residual is not None and residual.shape != shape:
        raise ValueError(f"residual {residual.shape} does not fit the result; expected {shape}")
    if params["activation"] not in ACTIVATIONS:
        raise ValueError(f"no activation {params['activation']!r}; expected one of {', '.join(ACTIVATIONS)}")
    params["scale"] = float(params["scale"])
    return [(dtype, shape)]


def _fused_linear_decomposed(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    residual: TensorLike | None,
    *,
    activation: str,
    scale: float,
) -> Any:
    if scale == 1:
        out = linear(x, weight, bias)
    else:
        out = linear(x, weight) * scale
        out = out if bias is None else out + bias
    out = ACTIVATIONS[activation](out)
    return out if residual is None else out + residual


_ACTIVATION_GRADS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda g, y: g,
    "relu": activations.relu_grad,
    "gelu": lambda g, y: activations.gelu_grad(g, y, "none"),
    "gelu_tanh": lambda g, y: activations.gelu_grad(g, y, "tanh"),
    "silu": activations.silu_grad,
    "sigmoid": lambda g, y: activations.sigmoid_grad(g, activations.sigmoid(y)),
    "tanh": lambda g, y: _tanh_grad(g, tanh(y)),
}
"""Gradients of the activations with respect to their input y, given y."""


def _tanh_grad(g: TensorLike, out: TensorLike) -> Any:
    return g * (1.0 - out * out)


def _fused_linear_gradient(
    g: TensorLike,
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    residual: TensorLike | None,
    out: TensorLike,
    x_spec: Spec,
    needs: tuple[bool, ...],
    *,
    activation: str,
    scale: float,
) -> Any:
    y = None
    if activation == "relu" and residual is None:
        y = out  # has the same signs
    elif activation != "none":
        y = _fused_linear_decomposed(x, weight, bias, None, activation="none", scale=scale)
    dy = _ACTIVATION_GRADS[activation](g, y)
    if scale == 1:
        return (*_linear_gradient(dy, x, weight, x_spec, needs[:3]), g)
    dx, dw, _ = _linear_gradient(dy * scale, x, weight, x_spec, needs[:2])
    db = sum_(as_rows(dy), 0) if needs[2] else None
    return dx, dw, db, g


def _fused_linear_samples(rng: np.random.Generator) -> list[Sample]:
    def sample(lead: tuple[int, ...], inner: int, outer: int, bias: bool, residual: bool, **params: Any) -> Sample:
        x, weight = rng.uniform(-1, 1, (*lead, inner)), rng.uniform(-1, 1, (outer, inner))
        added = (
            rng.uniform(-1, 1, (outer,)) if bias else None,
            rng.uniform(-1, 1, (*lead, outer)) if residual else None,
        )
        return Sample((x, weight, *added), params)

    return [
        *(sample((3,), 4, 5, True, True, activation=a, scale=0.5) for a in ACTIVATIONS),
        sample((), 4, 3, True, True, activation="silu"),
        sample((2, 3), 4, 7, False, True, activation="relu"),
        sample((0,), 4, 5, True, False),
        sample((33,), 65, 17, True, True, activation="gelu_tanh"),
        sample((70,), 40, 50, False, False, scale=2.0),
    ]


def _batched_fused_linear(call: BatchedCall) -> Any:
    """As `linear`; a batch of residuals is added to that of the results."""
    bias, residual = call.inputs[2:]
    if not any(call.batched[1:3]):
        return call.apply(call.expanded(0), call.inputs[1], bias, None if residual is None else call.expanded(3))
    if not call.batched[1] or not call.rank(0):
        return NotImplemented
    scale = call.params["scale"]
    out = _batched_product(call)
    out = out if scale == 1 else out * scale
    out = out if bias is None else out + _beside_rows(call, bias, out)
    out = ACTIVATIONS[call.params["activation"]](out)
    return out if residual is None else out + residual


fused_linear = declare(
    _fused_linear,
    name="fused_linear",
    family="contraction",
    infer=_infer_fused_linear,
    lowering=Decompose(_fused_linear_decomposed),
    batching=_batched_fused_linear,
    gradient=_fused_linear_gradient,
    samples=_fused_linear_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(8.0, terms=inner_length, floor=1.0),
    errors=[
        ErrorSample((np.zeros((2, 3)), np.zeros((4, 3)), None, np.zeros((2, 3))), {}, ValueError, "residual"),
        ErrorSample(
            (np.zeros((2, 3)), np.zeros((4, 3)), None, None),
            {"activation": "swish"},
            ValueError,
            "no activation 'swish'",
        ),
    ],
    flops=lambda specs, outs, params: 2 * outs[0].size * tensor_at(specs, 0).shape[-1],
    settings=("precision",),
    autocast=Autocast.HALF,
)
