"""Layer norm and RMS norm over trailing axes. Each also returns the statistics that its gradient needs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.batching import of_rows
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
    depends,
    first_tensor,
    reads,
    tensor_at,
)
from polyhal.hal.ops.fusion import ANY_NUMBER, Pattern
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.pointwise.exponential import rsqrt
from polyhal.hal.ops.reductions.spread import variance as variance_of
from polyhal.hal.ops.reductions.sums import mean, sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def float_input(specs: Specs) -> Spec:
    """The first input, which must be floating point. Raises TypeError."""
    spec = first_tensor(specs)
    if not spec.dtype.is_floating_point:
        raise TypeError(f"got {spec.dtype.name}; expected a floating-point tensor")
    return spec


def check_shape(name: str, spec: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an optional input has this shape."""
    if spec is not None and spec.shape != shape:
        raise ValueError(f"{name} has shape {spec.shape}; expected {shape}")


def _split(spec: Spec, params: Params) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The leading shape and the normalized trailing shape."""
    n = params["axes"]
    if not 1 <= n <= spec.ndim:
        raise ValueError(f"cannot normalize {n} axes of a tensor of {spec.ndim}")
    return spec.shape[: spec.ndim - n], spec.shape[spec.ndim - n :]


def _width(specs: Specs, params: Params) -> int:
    spec = next(s for s in specs if isinstance(s, Spec) and s.ndim)
    return math.prod(_split(spec, dict(params))[1])


def all_elements(specs: Specs, params: Params) -> int:
    """The number of terms of a sum over the whole first input."""
    return float_input(specs).size


def _trailing(axes: int) -> tuple[int, ...]:
    return tuple(range(-axes, 0))


def _leading(x: TensorLike, axes: int) -> tuple[int, ...]:
    return tuple(range(x.ndim - axes))


def _unsqueezed(statistic: TensorLike, axes: int) -> Any:
    """A statistic of the leading shape with axes of length 1 added, so that it broadcasts."""
    return reshape(statistic, (*statistic.shape, *(1,) * axes))


_SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((3, 5), 1),
    ((2, 3, 4), 2),
    ((7,), 1),
    ((4, 300), 1),
    ((0, 5), 1),
    ((2, 2, 64), 1),
]

# --- layer norm -----------------------------------------------------------------------------------------------------


def _layer_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    axes: int = 1,
    eps: float = 1e-5,
    out_dtype: Any = None,
) -> Any:
    """Zero mean and unit variance over the last `axes` axes, then scale and shift. Source: Ba et al., arXiv:1607.06450.

    Returns the result and, for the gradient, mean and 1/standard deviation. Passes set `out_dtype` where the result is cast.
    """
    over = _trailing(axes)
    mu = np.mean(x, axis=over)
    r = 1 / np.sqrt(np.var(x, axis=over) + eps)
    out = (x - np.expand_dims(mu, over)) * np.expand_dims(r, over)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mu, r


def _infer_layer_norm(specs: Specs, params: Params) -> list[Output]:
    spec = float_input(specs)
    lead, tail = _split(spec, params)
    check_shape("weight", specs[1], tail)
    check_shape("bias", specs[2], tail)
    wide = accumulator(spec.dtype)
    return [(params["out_dtype"] or spec.dtype, spec.shape), (wide, lead), (wide, lead)]


def _as_dtype(out: TensorLike, out_dtype: Any) -> Any:
    return out if out_dtype is None else cast(out, dtype=out_dtype)


def _layer_norm_decomposed(
    x: TensorLike, weight: TensorLike | None, bias: TensorLike | None, *, axes: int, eps: float, out_dtype: Any
) -> Any:
    over = _trailing(axes)
    mu = mean(x, over)
    centred = x - _unsqueezed(mu, axes)
    r = rsqrt(mean(centred * centred, over) + eps)
    out = centred * _unsqueezed(r, axes)
    out = out if weight is None else out * weight
    return _as_dtype(out if bias is None else out + bias, out_dtype), mu, r


def _normalized(
    x: TensorLike, weight: TensorLike | None, bias: TensorLike | None, *, axes: int, eps: float, variance: TensorLike
) -> Any:
    out = (x - mean(x, _trailing(axes), True)) * rsqrt(variance + eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _by_variance(
    x: TensorLike, weight: TensorLike | None, bias: TensorLike | None, *, axes: int, eps: float, out_dtype: None
) -> Any:
    return _normalized(x, weight, bias, axes=axes, eps=eps, variance=variance_of(x, _trailing(axes), True))


def _by_variance_of_centred(
    x: TensorLike, weight: TensorLike | None, bias: TensorLike | None, *, axes: int, eps: float, out_dtype: None
) -> Any:
    over = _trailing(axes)
    return _normalized(x, weight, bias, axes=axes, eps=eps, variance=variance_of(x - mean(x, over, True), over, True))


def _layer_norm_calls(x: Spec) -> Iterator[tuple[Specs, Params]]:
    """Over any number of trailing axes, with scale and shift or without."""
    for axes in range(1, x.ndim + 1):
        tail = contiguous(x.dtype, x.shape[x.ndim - axes :])
        for weight, bias in itertools.product((tail, None), repeat=2):
            yield (x, weight, bias), {"axes": axes, "eps": ANY_NUMBER, "out_dtype": None}


def _layer_norm_grad(
    grad: Array, x: Any, weight: Array | None = None, mu: Any = None, r: Any = None, *, axes: int = 1
) -> Any:
    """Gradients of layer_norm with respect to input, weight and bias, from the saved statistics."""
    over = _trailing(axes)
    lead = tuple(range(np.ndim(x) - axes))
    normal = (x - np.expand_dims(mu, over)) * np.expand_dims(r, over)
    scaled = grad if weight is None else grad * weight
    a = np.mean(scaled, axis=over, keepdims=True)
    b = np.mean(scaled * normal, axis=over, keepdims=True)
    return (
        np.expand_dims(r, over) * (scaled - a - normal * b),
        np.sum(grad * normal, axis=lead),
        np.sum(grad, axis=lead),
    )


def _infer_layer_norm_grad(specs: Specs, params: Params) -> list[Output]:
    x = tensor_at(specs, 1)
    lead, tail = _split(x, params)
    check_shape("weight", specs[2], tail)
    check_shape("mean", specs[3], lead)
    check_shape("rstd", specs[4], lead)
    w = specs[2].dtype if specs[2] is not None else x.dtype
    return [(x.dtype, x.shape), (w, tail), (w, tail)]


def _layer_norm_grad_decomposed(
    g: TensorLike, x: TensorLike, weight: TensorLike | None, mu: TensorLike, r: TensorLike, *, axes: int
) -> Any:
    over = _trailing(axes)
    normal = (x - _unsqueezed(mu, axes)) * _unsqueezed(r, axes)
    scaled = g if weight is None else g * weight
    dx = _unsqueezed(r, axes) * (scaled - mean(scaled, over, True) - normal * mean(scaled * normal, over, True))
    lead = _leading(x, axes)
    return dx, sum_(g * normal, lead), sum_(g, lead)


def _norm_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for shape, axes in _SHAPES:
        tail = shape[len(shape) - axes :]
        x = rng.uniform(-2, 2, shape) + 0.5
        out.append(Sample((x, rng.uniform(0.5, 1.5, tail), rng.uniform(-1, 1, tail)), {"axes": axes, "eps": 1e-5}))
        out.append(Sample((x, rng.uniform(0.5, 1.5, tail), None), {"axes": axes, "eps": 1e-3}))
        out.append(Sample((x, None, None), {"axes": axes, "eps": 1e-5}))
    x, scale = rng.uniform(-2, 2, (2, 8192)) + 0.5, rng.uniform(0.5, 1.5, 8192)
    out.append(Sample((x, scale, None), {"axes": 1, "eps": 1e-5}, differentiable=False, note="long rows"))
    return out


def norm_grad_samples(rng: np.random.Generator) -> list[Sample]:
    """Return calls of `layer_norm_grad`."""
    out = []
    for shape, axes in _SHAPES:
        tail = shape[len(shape) - axes :]
        x = rng.uniform(-2, 2, shape) + 0.5
        _, mu, r = _layer_norm(x, axes=axes)
        g = rng.uniform(-1, 1, shape)
        out.append(Sample((g, x, rng.uniform(0.5, 1.5, tail), mu, r), {"axes": axes}, differentiable=False))
        out.append(Sample((g, x, None, mu, r), {"axes": axes}, differentiable=False))
    x = rng.uniform(-2, 2, (2, 8192)) + 0.5
    _, mu, r = _layer_norm(x, axes=1)
    inputs = (rng.uniform(-1, 1, x.shape), x, rng.uniform(0.5, 1.5, 8192), mu, r)
    out.append(Sample(inputs, {"axes": 1}, differentiable=False, note="long rows"))
    return out


layer_norm_grad = declare(
    _layer_norm_grad,
    name="layer_norm_grad",
    family="norm",
    infer=_infer_layer_norm_grad,
    outputs=("dx", "dweight", "dbias"),
    lowering=Decompose(_layer_norm_grad_decomposed),
    samples=norm_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
)


@reads(bias="")
def _layer_norm_rule(
    g: TensorLike,
    x: TensorLike | None,
    weight: TensorLike | None,
    mean: TensorLike,
    rstd: TensorLike,
    bias_spec: Spec | None,
    *,
    axes: int,
) -> Any:
    if x is None:
        return None, None, g
    dx, dweight, dbias = layer_norm_grad(g, x, weight, mean, rstd, axes)
    return dx, None if weight is None else dweight, None if bias_spec is None else dbias


layer_norm = declare(
    _layer_norm,
    name="layer_norm",
    batching=of_rows,
    family="norm",
    public=False,
    infer=_infer_layer_norm,
    outputs=("out", "mean", "rstd"),
    lowering=Decompose(_layer_norm_decomposed),
    gradient=_layer_norm_rule,
    spellings=[_by_variance, _by_variance_of_centred],
    fuses=Pattern(_layer_norm_calls),
    samples=_norm_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=2.0, terms=_width),
    errors=[
        ErrorSample((np.zeros((2, 3)), np.zeros(2), None), {"axes": 1, "eps": 1e-5}, ValueError, "weight has shape")
    ],
    autocast=Autocast.FLOAT32,
)

# --- root-mean-square norm ------------------------------------------------------------------------------------------


def _rms_norm(x: Array, weight: Array | None = None, *, axes: int = 1, eps: float = 1e-6, out_dtype: Any = None) -> Any:
    """Unit root mean square over the last `axes` axes, then scale. Source: Zhang and Sennrich, arXiv:1910.07467.

    Returns the result and, for the gradient, 1/root mean square. Passes set `out_dtype` where the result is cast.
    """
    over = _trailing(axes)
    r = 1 / np.sqrt(np.mean(np.square(x), axis=over) + eps)
    out = x * np.expand_dims(r, over)
    return out if weight is None else out * weight, r


def _infer_rms_norm(specs: Specs, params: Params) -> list[Output]:
    spec = float_input(specs)
    lead, tail = _split(spec, params)
    check_shape("weight", specs[1], tail)
    return [(params["out_dtype"] or spec.dtype, spec.shape), (accumulator(spec.dtype), lead)]


def _rms_norm_decomposed(x: TensorLike, weight: TensorLike | None, *, axes: int, eps: float, out_dtype: Any) -> Any:
    r = rsqrt(mean(x * x, _trailing(axes)) + eps)
    out = x * _unsqueezed(r, axes)
    return _as_dtype(out if weight is None else out * weight, out_dtype), r


def _rms_norm_calls(x: Spec) -> Iterator[tuple[Specs, Params]]:
    for (_, weight, bias), params in _layer_norm_calls(x):
        if bias is None:
            yield (x, weight), params


def _rms_norm_grad(grad: Array, x: Any, weight: Array | None = None, r: Any = None, *, axes: int = 1) -> Any:
    """Gradients of rms_norm with respect to input and weight, from the saved statistic."""
    over = _trailing(axes)
    normal = x * np.expand_dims(r, over)
    scaled = grad if weight is None else grad * weight
    dx = np.expand_dims(r, over) * (scaled - normal * np.mean(scaled * normal, axis=over, keepdims=True))
    return dx, np.sum(grad * normal, axis=tuple(range(np.ndim(x) - axes)))


def _infer_rms_norm_grad(specs: Specs, params: Params) -> list[Output]:
    x = tensor_at(specs, 1)
    lead, tail = _split(x, params)
    check_shape("weight", specs[2], tail)
    check_shape("rstd", specs[3], lead)
    return [(x.dtype, x.shape), (specs[2].dtype if specs[2] is not None else x.dtype, tail)]


def _rms_norm_grad_decomposed(
    g: TensorLike, x: TensorLike, weight: TensorLike | None, r: TensorLike, *, axes: int
) -> Any:
    normal = x * _unsqueezed(r, axes)
    scaled = g if weight is None else g * weight
    dx = _unsqueezed(r, axes) * (scaled - normal * mean(scaled * normal, _trailing(axes), True))
    return dx, sum_(g * normal, _leading(x, axes))


rms_norm_grad = declare(
    _rms_norm_grad,
    name="rms_norm_grad",
    family="norm",
    infer=_infer_rms_norm_grad,
    outputs=("dx", "dweight"),
    lowering=Decompose(_rms_norm_grad_decomposed),
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
    samples=lambda rng: [
        Sample(
            (s.inputs[0], s.inputs[1], s.inputs[2], _rms_norm(s.inputs[1], axes=s.params["axes"])[1]),
            s.params,
            differentiable=False,
        )
        for s in norm_grad_samples(rng)
    ],
)


@depends(rstd="x")
@reads(weight="x rstd")
def _rms_norm_rule(g: TensorLike, x: TensorLike, weight: TensorLike | None, rstd: TensorLike, *, axes: int) -> Any:
    return rms_norm_grad(g, x, weight, rstd, axes)


rms_norm = declare(
    _rms_norm,
    name="rms_norm",
    batching=of_rows,
    family="norm",
    public=False,
    infer=_infer_rms_norm,
    outputs=("out", "rstd"),
    lowering=Decompose(_rms_norm_decomposed),
    gradient=_rms_norm_rule,
    fuses=Pattern(_rms_norm_calls),
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=2.0, terms=_width),
    samples=lambda rng: [replace(s, inputs=s.inputs[:2]) for s in _norm_samples(rng) if s.inputs[2] is None],
    autocast=Autocast.FLOAT32,
)
