"""Normalisation: layer, root-mean-square and batch norm, with the statistics that their gradients need."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.ops.exponential import rsqrt
from polyhal.hal.ops.movement import reshape
from polyhal.hal.ops.opdef import ErrorSample, Output, Params, Sample, Specs, Tolerance, declare
from polyhal.hal.ops.reduction import mean, sum_


def _first(specs: Specs) -> Spec:
    spec = specs[0]
    assert isinstance(spec, Spec)
    if not spec.dtype.is_floating_point:
        raise TypeError(f"got {spec.dtype.name}; expected a floating-point tensor")
    return spec


def _check(name: str, spec: Any, shape: tuple[int, ...]) -> None:
    if spec is not None and spec.shape != shape:
        raise ValueError(f"{name} has shape {spec.shape}; expected {shape}")


def _split(spec: Spec, params: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The leading shape and the normalised trailing shape."""
    n = params["axes"]
    if not 1 <= n <= spec.ndim:
        raise ValueError(f"cannot normalise {n} axes of a tensor of {spec.ndim}")
    return spec.shape[: spec.ndim - n], spec.shape[spec.ndim - n :]


def _width(specs: Specs, params: Params) -> int:
    spec = next(s for s in specs if isinstance(s, Spec) and s.ndim)
    return math.prod(_split(spec, dict(params))[1])


def _everything(specs: Specs, params: Params) -> int:
    return _first(specs).size


def _trailing(axes: int) -> tuple[int, ...]:
    return tuple(range(-axes, 0))


def _leading(x: Any, axes: int) -> tuple[int, ...]:
    return tuple(range(x.ndim - axes))


def _spread(statistic: Any, axes: int) -> Any:
    """A statistic of the leading shape, made to broadcast against the whole."""
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


def _layer_norm(x: Any, weight: Any = None, bias: Any = None, *, axes: int = 1, eps: float = 1e-5) -> Any:
    """Zero mean and unit variance over the last `axes` axes, then scale and shift. Source: Ba et al., arXiv:1607.06450.

    Returns the result and, for the gradient, mean and 1/standard deviation.
    """
    over = _trailing(axes)
    mu = np.mean(x, axis=over)
    r = 1 / np.sqrt(np.var(x, axis=over) + eps)
    out = (x - np.expand_dims(mu, over)) * np.expand_dims(r, over)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mu, r


def _infer_layer_norm(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    lead, tail = _split(spec, params)
    _check("weight", specs[1], tail)
    _check("bias", specs[2], tail)
    wide = accumulator(spec.dtype)
    return [(spec.dtype, spec.shape), (wide, lead), (wide, lead)]


def _layer_norm_decomposed(x: Any, weight: Any, bias: Any, *, axes: int, eps: float) -> Any:
    over = _trailing(axes)
    mu = mean(x, over)
    centred = x - _spread(mu, axes)
    r = rsqrt(mean(centred * centred, over) + eps)
    out = centred * _spread(r, axes)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mu, r


def _layer_norm_grad(grad: Any, x: Any, weight: Any = None, mu: Any = None, r: Any = None, *, axes: int = 1) -> Any:
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


def _infer_layer_norm_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x = specs[1]
    assert isinstance(x, Spec)
    lead, tail = _split(x, params)
    _check("weight", specs[2], tail)
    _check("mean", specs[3], lead)
    _check("rstd", specs[4], lead)
    w = specs[2].dtype if specs[2] is not None else x.dtype
    return [(x.dtype, x.shape), (w, tail), (w, tail)]


def _layer_norm_grad_decomposed(g: Any, x: Any, weight: Any, mu: Any, r: Any, *, axes: int) -> Any:
    over = _trailing(axes)
    normal = (x - _spread(mu, axes)) * _spread(r, axes)
    scaled = g if weight is None else g * weight
    dx = _spread(r, axes) * (scaled - mean(scaled, over, True) - normal * mean(scaled * normal, over, True))
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
    return out


def _norm_grad_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for shape, axes in _SHAPES:
        tail = shape[len(shape) - axes :]
        x = rng.uniform(-2, 2, shape) + 0.5
        _, mu, r = _layer_norm(x, axes=axes)
        g = rng.uniform(-1, 1, shape)
        out.append(Sample((g, x, rng.uniform(0.5, 1.5, tail), mu, r), {"axes": axes}, differentiable=False))
        out.append(Sample((g, x, None, mu, r), {"axes": axes}, differentiable=False))
    return out


layer_norm_grad = declare(
    _layer_norm_grad,
    name="layer_norm_grad",
    family="norm",
    infer=_infer_layer_norm_grad,
    outputs=("dx", "dweight", "dbias"),
    decompose=_layer_norm_grad_decomposed,
    samples=_norm_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=_everything),
)


def _layer_norm_rule(g: Any, x: Any, weight: Any, mean: Any, rstd: Any, bias_spec: Any, *, axes: int) -> Any:
    dx, dweight, dbias = layer_norm_grad(g, x, weight, mean, rstd, axes)
    return dx, None if weight is None else dweight, None if bias_spec is None else dbias


layer_norm = declare(
    _layer_norm,
    name="layer_norm",
    family="norm",
    public=False,
    infer=_infer_layer_norm,
    outputs=("out", "mean", "rstd"),
    decompose=_layer_norm_decomposed,
    gradient=_layer_norm_rule,
    samples=_norm_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=2.0, terms=_width),
    errors=[
        ErrorSample((np.zeros((2, 3)), np.zeros(2), None), {"axes": 1, "eps": 1e-5}, ValueError, "weight has shape")
    ],
)

# --- root-mean-square norm ------------------------------------------------------------------------------------------


def _rms_norm(x: Any, weight: Any = None, *, axes: int = 1, eps: float = 1e-6) -> Any:
    """Unit root mean square over the last `axes` axes, then scale. Source: Zhang and Sennrich, arXiv:1910.07467.

    Returns the result and, for the gradient, 1/root mean square.
    """
    over = _trailing(axes)
    r = 1 / np.sqrt(np.mean(np.square(x), axis=over) + eps)
    out = x * np.expand_dims(r, over)
    return out if weight is None else out * weight, r


def _infer_rms_norm(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    lead, tail = _split(spec, params)
    _check("weight", specs[1], tail)
    return [(spec.dtype, spec.shape), (accumulator(spec.dtype), lead)]


def _rms_norm_decomposed(x: Any, weight: Any, *, axes: int, eps: float) -> Any:
    r = rsqrt(mean(x * x, _trailing(axes)) + eps)
    out = x * _spread(r, axes)
    return out if weight is None else out * weight, r


def _rms_norm_grad(grad: Any, x: Any, weight: Any = None, r: Any = None, *, axes: int = 1) -> Any:
    """Gradients of rms_norm with respect to input and weight, from the saved statistic."""
    over = _trailing(axes)
    normal = x * np.expand_dims(r, over)
    scaled = grad if weight is None else grad * weight
    dx = np.expand_dims(r, over) * (scaled - normal * np.mean(scaled * normal, axis=over, keepdims=True))
    return dx, np.sum(grad * normal, axis=tuple(range(np.ndim(x) - axes)))


def _infer_rms_norm_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x = specs[1]
    assert isinstance(x, Spec)
    lead, tail = _split(x, params)
    _check("weight", specs[2], tail)
    _check("rstd", specs[3], lead)
    return [(x.dtype, x.shape), (specs[2].dtype if specs[2] is not None else x.dtype, tail)]


def _rms_norm_grad_decomposed(g: Any, x: Any, weight: Any, r: Any, *, axes: int) -> Any:
    normal = x * _spread(r, axes)
    scaled = g if weight is None else g * weight
    dx = _spread(r, axes) * (scaled - normal * mean(scaled * normal, _trailing(axes), True))
    return dx, sum_(g * normal, _leading(x, axes))


rms_norm_grad = declare(
    _rms_norm_grad,
    name="rms_norm_grad",
    family="norm",
    infer=_infer_rms_norm_grad,
    outputs=("dx", "dweight"),
    decompose=_rms_norm_grad_decomposed,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=_everything),
    samples=lambda rng: [
        Sample(
            (s.inputs[0], s.inputs[1], s.inputs[2], _rms_norm(s.inputs[1], axes=s.params["axes"])[1]),
            s.params,
            differentiable=False,
        )
        for s in _norm_grad_samples(rng)
    ],
)


def _rms_norm_rule(g: Any, x: Any, weight: Any, rstd: Any, *, axes: int) -> Any:
    dx, dweight = rms_norm_grad(g, x, weight, rstd, axes)
    return dx, None if weight is None else dweight


rms_norm = declare(
    _rms_norm,
    name="rms_norm",
    family="norm",
    public=False,
    infer=_infer_rms_norm,
    outputs=("out", "rstd"),
    decompose=_rms_norm_decomposed,
    gradient=_rms_norm_rule,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=2.0, terms=_width),
    samples=lambda rng: [Sample(s.inputs[:2], s.params) for s in _norm_samples(rng) if s.inputs[2] is None],
)

# --- batch norm -----------------------------------------------------------------------------------------------------


def _channels(x: Any) -> tuple[int, ...]:
    """All axes but the second."""
    return (0, *range(2, x.ndim))


def _per_channel(statistic: Any, x: Any) -> Any:
    return reshape(statistic, (1, -1, *(1,) * (x.ndim - 2)))


def _np_per_channel(statistic: Any, x: Any) -> Any:
    return np.reshape(statistic, (1, -1, *(1,) * (x.ndim - 2)))


def _batch_norm(x: Any, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """Zero mean and unit variance per channel (axis 1) over the batch, then scale and shift. Source: arXiv:1502.03167.

    Returns the result and the batch's mean and (biased) variance per channel.
    """
    x = np.asarray(x)
    over = _channels(x)
    mu, var = np.mean(x, axis=over), np.var(x, axis=over)
    out = (x - _np_per_channel(mu, x)) / np.sqrt(_np_per_channel(var, x) + eps)
    out = out if weight is None else out * _np_per_channel(weight, x)
    return out if bias is None else out + _np_per_channel(bias, x), mu, var


def _infer_batch_norm(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = _first(specs)
    if spec.ndim < 2:
        raise ValueError(f"got shape {spec.shape}; expected (batch, channels, ...)")
    channels = (spec.shape[1],)
    _check("weight", specs[1], channels)
    _check("bias", specs[2], channels)
    wide = accumulator(spec.dtype)
    return [(spec.dtype, spec.shape), (wide, channels), (wide, channels)]


def _batch_norm_decomposed(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    over = _channels(x)
    mu = mean(x, over)
    centred = x - _per_channel(mu, x)
    var = mean(centred * centred, over)
    scale = rsqrt(var + eps)
    out = centred * _per_channel(scale if weight is None else scale * weight, x)
    return out if bias is None else out + _per_channel(bias, x), mu, var


def _batch_norm_grad(
    grad: Any, x: Any, weight: Any = None, mu: Any = None, var: Any = None, *, eps: float = 1e-5
) -> Any:
    """Gradients of batch_norm with respect to input, weight and bias, from the batch's statistics."""
    x = np.asarray(x)
    over = _channels(x)
    r = 1 / np.sqrt(_np_per_channel(var, x) + eps)
    normal = (x - _np_per_channel(mu, x)) * r
    scaled = grad if weight is None else grad * _np_per_channel(weight, x)
    dx = r * (
        scaled - np.mean(scaled, axis=over, keepdims=True) - normal * np.mean(scaled * normal, axis=over, keepdims=True)
    )
    return dx, np.sum(grad * normal, axis=over), np.sum(grad, axis=over)


def _infer_batch_norm_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x = specs[1]
    assert isinstance(x, Spec)
    channels = (x.shape[1],)
    for name, s in zip(("weight", "mean", "var"), specs[2:], strict=True):
        _check(name, s, channels)
    w = specs[2].dtype if specs[2] is not None else x.dtype
    return [(x.dtype, x.shape), (w, channels), (w, channels)]


def _batch_norm_grad_decomposed(g: Any, x: Any, weight: Any, mu: Any, var: Any, *, eps: float) -> Any:
    over = _channels(x)
    r = _per_channel(rsqrt(var + eps), x)
    normal = (x - _per_channel(mu, x)) * r
    scaled = g if weight is None else g * _per_channel(weight, x)
    dx = r * (scaled - mean(scaled, over, True) - normal * mean(scaled * normal, over, True))
    return dx, sum_(g * normal, over), sum_(g, over)


_BATCH_SHAPES = [(4, 3), (2, 3, 5), (3, 4, 2, 3), (2, 1, 4, 4)]


def _batch_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for shape in _BATCH_SHAPES:
        x, c = rng.uniform(-2, 2, shape) + 0.5, shape[1]
        out.append(Sample((x, rng.uniform(0.5, 1.5, c), rng.uniform(-1, 1, c)), {"eps": 1e-5}))
        out.append(Sample((x, None, None), {"eps": 1e-3}))
    return out


def _batch_grad_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for s in _batch_samples(rng):
        x, weight = s.inputs[:2]
        _, mu, var = _batch_norm(x, eps=s.params["eps"])
        out.append(Sample((rng.uniform(-1, 1, x.shape), x, weight, mu, var), s.params, differentiable=False))
    return out


batch_norm_grad = declare(
    _batch_norm_grad,
    name="batch_norm_grad",
    family="norm",
    infer=_infer_batch_norm_grad,
    outputs=("dx", "dweight", "dbias"),
    decompose=_batch_norm_grad_decomposed,
    samples=_batch_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=_everything),
)


def _batch_norm_rule(g: Any, x: Any, weight: Any, mean: Any, var: Any, bias_spec: Any, *, eps: float) -> Any:
    dx, dweight, dbias = batch_norm_grad(g, x, weight, mean, var, eps)
    return dx, None if weight is None else dweight, None if bias_spec is None else dbias


batch_norm = declare(
    _batch_norm,
    name="batch_norm",
    family="norm",
    public=False,
    infer=_infer_batch_norm,
    outputs=("out", "mean", "var"),
    decompose=_batch_norm_decomposed,
    gradient=_batch_norm_rule,
    samples=_batch_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=_everything),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros(2), None), {"eps": 1e-5}, ValueError, "weight has shape")],
)
