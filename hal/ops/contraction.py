"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, View, broadcast_shapes, broadcast_strides
from polyhal.hal.ops import activation as activations
from polyhal.hal.ops.cast import cast
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.movement import permute, reshape, transpose
from polyhal.hal.ops.opdef import (
    OPS,
    CoreCall,
    CoreInput,
    ErrorSample,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
)
from polyhal.hal.ops.reduction import sum_
from polyhal.hal.ops.trigonometry import tanh
from polyhal.hal.protocol import ComputeBackend


def _matrices(specs: Specs) -> tuple[Spec, Spec]:
    x, y = specs[:2]
    assert isinstance(x, Spec)
    assert isinstance(y, Spec)
    return x, y


def _matmul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """Matrix product of the last two axes, broadcast over the others: (..., M, K) @ (..., K, N)."""
    if out_dtype is None:
        return np.matmul(x, y)
    wanted = dtypes.as_dtype(out_dtype)
    wide = np.dtype(np.float64) if wanted.is_floating_point else wanted.numpy
    return np.matmul(np.asarray(x).astype(wide), np.asarray(y).astype(wide))


def _infer_matmul(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, y = _matrices(specs)
    if x.ndim < 2 or y.ndim < 2:
        raise ValueError(f"shapes {x.shape} and {y.shape}; expected at least 2 axes each")
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"inner lengths differ: {x.shape} @ {y.shape} multiplies {x.shape[-1]} by {y.shape[-2]}")
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    dtype = dtypes.promote(x.dtype, y.dtype)
    if params["out_dtype"] is not None:
        wanted = params["out_dtype"] = dtypes.as_dtype(params["out_dtype"])
        if dtypes.promote(dtype, wanted) is not wanted:
            raise ValueError(f"{wanted.name} cannot hold sums of {dtype.name}; expected a dtype to which that widens")
        dtype = wanted
    return [(dtype, (*batch, x.shape[-2], y.shape[-1]))]


def _matmul_core(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    (x, y), (out,) = _matrices(specs), outputs
    batch, (m, k), n = out.shape[:-2], x.shape[-2:], y.shape[-1]
    count = int(np.prod(batch, dtype=int))

    def spread(s: Spec) -> View:
        shape = (*batch, *s.shape[-2:])
        return View(shape, broadcast_strides(s.shape, s.strides, shape))

    inputs = (CoreInput(out.dtype, (count, m, k), spread(x)), CoreInput(out.dtype, (count, k, n), spread(y)))
    return CoreCall("matmul", backend.matmul, inputs, out.dtype, (count, m, n))


def _matmul_gradient(g: Any, x: Any, y: Any, needs: tuple[bool, ...]) -> Any:
    dx = _narrowed(op_matmul(g, transpose(y)), x) if needs[0] else None
    if not needs[1]:
        return dx, None
    if y.ndim == 2 and x.ndim > 2:
        # One large product instead of a batch of small ones that would have to be summed.
        x, g = reshape(x, (-1, x.shape[-1])), reshape(g, (-1, g.shape[-1]))
    return dx, _narrowed(op_matmul(transpose(x), g), y)


def _narrowed(gradient: Any, operand: Any) -> Any:
    return gradient if gradient.dtype is operand.dtype else cast(gradient, dtype=operand.dtype)


def _inner(specs: Specs, params: Params) -> int:
    return specs[0].shape[-1] if specs[0] is not None else 1


def _matmul_samples(rng: np.random.Generator) -> list[Sample]:
    shapes = [
        ((3, 4), (4, 5)),
        ((1, 1), (1, 1)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (3, 4, 2)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
        ((33, 65), (65, 17)),
        ((70, 40), (40, 130)),
    ]
    plain = [Sample((rng.uniform(-1, 1, a), rng.uniform(-1, 1, b))) for a, b in shapes]
    return [*plain, *(_wide_sample(rng, *case) for case in _WIDE_CASES)]


_WIDE_CASES: tuple[tuple[DType, DType, int, int, int], ...] = (
    (dtypes.int8, dtypes.int32, 3, 4, 5),
    (dtypes.int8, dtypes.int32, 70, 300, 40),
    (dtypes.uint8, dtypes.int32, 1, 300, 40),
    (dtypes.float16, dtypes.float32, 70, 300, 40),
    (dtypes.bfloat16, dtypes.float32, 1, 300, 40),
)
"""Operands, result, M, K and N of products with a result wider than the operands."""


def _wide_sample(rng: np.random.Generator, dtype: DType, out: DType, m: int, k: int, n: int) -> Sample:
    def draw(*shape: int) -> np.ndarray:
        if dtype.is_floating_point:
            return rng.uniform(-1, 1, shape).astype(dtype.numpy)
        limits = np.iinfo(dtype.numpy)
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype.numpy)

    return Sample((draw(m, k), draw(k, n)), {"out_dtype": out}, differentiable=False)


op_matmul = declare(
    _matmul,
    name="matmul",
    family="contraction",
    infer=_infer_matmul,
    core=_matmul_core,
    gradient=_matmul_gradient,
    samples=_matmul_samples,
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    tolerance=Tolerance(1.0, terms=_inner),
    errors=[
        ErrorSample((np.zeros((2, 3)), np.zeros((4, 2))), {}, ValueError, "inner lengths differ"),
        ErrorSample((np.zeros((2, 3)), np.zeros((3, 2))), {"out_dtype": dtypes.int32}, ValueError, "cannot hold"),
    ],
    flops=lambda specs, outs, params: 2 * outs[0].size * specs[0].shape[-1],
    settings=("precision",),
)


@composite()
def matmul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """Matrix product as NumPy's: 1-D inputs are vectors, further axes broadcast: (..., M, K) @ (..., K, N).

    Sums have the dtype of the result; `out_dtype` makes that a wider one than the operands', such as int32 for int8.
    """
    nx, ny = getattr(x, "ndim", 2), getattr(y, "ndim", 2)
    if nx >= 2 and ny >= 2:
        return op_matmul(x, y, out_dtype)
    if not nx or not ny:
        raise ValueError(f"[matmul] shapes {x.shape} and {y.shape}; expected at least one axis each; use * for scaling")
    rows = reshape(x, (1, -1)) if nx == 1 else x
    columns = reshape(y, (-1, 1)) if ny == 1 else y
    out = op_matmul(rows, columns, out_dtype)
    if nx == 1:
        out = reshape(out, (*out.shape[:-2], out.shape[-1]))
    return reshape(out, out.shape[:-1]) if ny == 1 else out


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """`x @ weight.T + bias`: x (..., in), weight (out, in), bias (out,)."""
    out = np.matmul(x, np.swapaxes(weight, 0, 1))
    return out if bias is None else out + bias


def _infer_linear(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, weight = _matrices(specs)
    if x.ndim < 1 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"x {x.shape} does not fit weight {weight.shape}; expected (..., {weight.shape[-1]}) and (out, in)"
        )
    bias = specs[2]
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias {bias.shape} does not fit weight {weight.shape}; expected ({weight.shape[0]},)")
    return [(dtypes.promote(x.dtype, weight.dtype), (*x.shape[:-1], weight.shape[0]))]


def _linear_decomposed(x: Any, weight: Any, bias: Any) -> Any:
    out = op_matmul(reshape(x, (-1, x.shape[-1])) if x.ndim != 2 else x, permute(weight, (1, 0)))
    if bias is not None:
        out = out + bias
    return reshape(out, (*x.shape[:-1], weight.shape[0]))


def _linear_gradient(g: Any, x: Any, weight: Any, needs: tuple[bool, ...]) -> Any:
    rows = reshape(g, (-1, g.shape[-1]))
    dx = reshape(op_matmul(rows, weight), x.shape) if needs[0] else None
    columns = reshape(x, (-1, x.shape[-1])) if needs[1] else None
    biased = len(needs) > 2 and needs[2]
    if needs[1] and biased:
        return (dx, *linear_weight_grad(rows, columns))
    return dx, _weight_gradient(rows, columns) if needs[1] else None, sum_(rows, 0) if biased else None


def _weight_gradient(g: Any, x: Any) -> Any:
    return op_matmul(permute(g, (1, 0)), x)


def _linear_weight_grad(grad: Any, x: Any) -> Any:
    """Gradients of the weight (out, in) and the bias (out,) of `linear`, given `grad` (rows, out) and x (rows, in)."""
    return np.matmul(np.swapaxes(grad, 0, 1), x), np.sum(grad, axis=0)


def _infer_linear_weight_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    g, x = _matrices(specs)
    if g.ndim != 2 or x.ndim != 2 or g.shape[0] != x.shape[0]:
        raise ValueError(f"grad {g.shape} and x {x.shape}; expected (rows, out) and (rows, in)")
    return [(dtypes.promote(g.dtype, x.dtype), (g.shape[1], x.shape[1])), (g.dtype, g.shape[1:])]


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
    decompose=lambda grad, x: (_weight_gradient(grad, x), sum_(grad, 0)),
    # The product and the sum add up in float32 anyway, and the product of halves may run on matrix units.
    widen=False,
    samples=_linear_weight_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, floor=1.0, terms=lambda specs, params: specs[0].shape[0]),  # type: ignore[union-attr]
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((4, 2))), {}, ValueError, "expected \\(rows, out\\)")],
    flops=lambda specs, outs, params: 2 * outs[0].size * specs[0].shape[0],
    settings=("precision",),
)


def _linear_samples(rng: np.random.Generator) -> list[Sample]:
    shapes = [((3, 4), 5), ((2, 3, 4), 7), ((4,), 3), ((0, 4), 5), ((33, 65), 17)]
    return [
        Sample((rng.uniform(-1, 1, s), rng.uniform(-1, 1, (n, s[-1])), rng.uniform(-1, 1, (n,)) if bias else None))
        for s, n in shapes
        for bias in (True, False)
    ]


linear = declare(
    _linear,
    name="linear",
    family="contraction",
    infer=_infer_linear,
    decompose=_linear_decomposed,
    gradient=_linear_gradient,
    samples=_linear_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, terms=_inner),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((4, 2))), {}, ValueError, "does not fit")],
    flops=lambda specs, outs, params: 2 * outs[0].size * specs[0].shape[-1],
    settings=("precision",),
)


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "relu": activations.relu,
    "gelu": activations.gelu,
    "gelu_tanh": lambda x: activations.gelu(x, approximate="tanh"),
    "silu": activations.silu,
    "sigmoid": activations.sigmoid,
    "tanh": tanh,
}
"""The functions that a product applies to its results, by the name of the parameter's value."""


def _fused_linear(
    x: Any, weight: Any, bias: Any = None, residual: Any = None, *, activation: str = "none", scale: float = 1.0
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
    if params["activation"] not in _ACTIVATIONS:
        raise ValueError(f"no activation {params['activation']!r}; expected one of {', '.join(_ACTIVATIONS)}")
    params["scale"] = float(params["scale"])
    return [(dtype, shape)]


def _fused_linear_decomposed(x: Any, weight: Any, bias: Any, residual: Any, *, activation: str, scale: float) -> Any:
    if scale == 1:
        out = linear(x, weight, bias)
    else:
        out = linear(x, weight) * scale
        out = out if bias is None else out + bias
    out = _ACTIVATIONS[activation](out)
    return out if residual is None else out + residual


_SLOPES: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda g, y: g,
    "relu": activations.relu_grad,
    "gelu": lambda g, y: activations.gelu_grad(g, y, "none"),
    "gelu_tanh": lambda g, y: activations.gelu_grad(g, y, "tanh"),
    "silu": activations.silu_grad,
    "sigmoid": lambda g, y: activations.sigmoid_grad(g, activations.sigmoid(y)),
    "tanh": lambda g, y: _tanh_grad(g, tanh(y)),
}
"""The gradients of the activations, given what these are applied to."""


def _tanh_grad(g: Any, out: Any) -> Any:
    return g * (1.0 - out * out)


def _fused_linear_gradient(
    g: Any,
    x: Any,
    weight: Any,
    bias: Any,
    residual: Any,
    out: Any,
    needs: tuple[bool, ...],
    *,
    activation: str,
    scale: float,
) -> Any:
    before = None
    if activation == "relu" and residual is None:
        before = out  # has the same signs
    elif activation != "none":
        before = _fused_linear_decomposed(x, weight, bias, None, activation="none", scale=scale)
    slope = _SLOPES[activation](g, before)
    if scale == 1:
        return (*_linear_gradient(slope, x, weight, needs[:3]), g)
    dx, dw, _ = _linear_gradient(slope * scale, x, weight, needs[:2])
    db = sum_(reshape(slope, (-1, slope.shape[-1])), 0) if needs[2] else None
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
        *(sample((3,), 4, 5, True, True, activation=a, scale=0.5) for a in _ACTIVATIONS),
        sample((), 4, 3, True, True, activation="silu"),
        sample((2, 3), 4, 7, False, True, activation="relu"),
        sample((0,), 4, 5, True, False),
        sample((33,), 65, 17, True, True, activation="gelu_tanh"),
        sample((70,), 40, 50, False, False, scale=2.0),
    ]


fused_linear = declare(
    _fused_linear,
    name="fused_linear",
    family="contraction",
    infer=_infer_fused_linear,
    decompose=_fused_linear_decomposed,
    gradient=_fused_linear_gradient,
    samples=_fused_linear_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(8.0, terms=_inner, floor=1.0),
    errors=[
        ErrorSample((np.zeros((2, 3)), np.zeros((4, 3)), None, np.zeros((2, 3))), {}, ValueError, "residual"),
        ErrorSample(
            (np.zeros((2, 3)), np.zeros((4, 3)), None, None),
            {"activation": "swish"},
            ValueError,
            "no activation 'swish'",
        ),
    ],
    flops=lambda specs, outs, params: 2 * outs[0].size * specs[0].shape[-1],
    settings=("precision",),
)
