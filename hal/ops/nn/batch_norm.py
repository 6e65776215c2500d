"""Batch norm. It also returns the statistics that its gradient needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.ops.declare import Decompose, ErrorSample, Output, Sample, Specs, Tolerance, declare, reads, tensor_at
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.nn.norm import all_elements, check_shape, float_input
from polyhal.hal.ops.pointwise.exponential import rsqrt
from polyhal.hal.ops.reductions.sums import mean, sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.ops.traits import Trait

if TYPE_CHECKING:
    from polyhal.hal.layout import Spec
    from polyhal.hal.ops.schema import Params


def over_channels(x: TensorLike | Array) -> tuple[int, ...]:
    """All axes but the second."""
    return (0, *range(2, x.ndim))


def per_channel(statistic: TensorLike, x: TensorLike) -> Any:
    """A value per channel, reshaped to broadcast against `x` (N, C, ...)."""
    return reshape(statistic, (1, -1, *(1,) * (x.ndim - 2)))


def np_per_channel(statistic: Any, x: Array) -> Any:
    """`per_channel` in NumPy."""
    return np.reshape(statistic, (1, -1, *(1,) * (x.ndim - 2)))


def _batch_norm(x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5) -> Any:
    """Zero mean and unit variance per channel (axis 1) over the batch, then scale and shift. Source: arXiv:1502.03167.

    Returns the result and the batch's mean and (biased) variance per channel.
    """
    x = np.asarray(x)
    over = over_channels(x)
    mu, var = np.mean(x, axis=over), np.var(x, axis=over)
    out = (x - np_per_channel(mu, x)) / np.sqrt(np_per_channel(var, x) + eps)
    out = out if weight is None else out * np_per_channel(weight, x)
    return out if bias is None else out + np_per_channel(bias, x), mu, var


def _infer_batch_norm(specs: Specs, params: Params) -> list[Output]:
    spec = float_input(specs)
    if spec.ndim < 2:
        raise ValueError(f"got shape {spec.shape}; expected (batch, channels, ...)")
    channels = (spec.shape[1],)
    check_shape("weight", specs[1], channels)
    check_shape("bias", specs[2], channels)
    wide = accumulator(spec.dtype)
    return [(spec.dtype, spec.shape), (wide, channels), (wide, channels)]


def _batch_norm_decomposed(x: TensorLike, weight: TensorLike | None, bias: TensorLike | None, *, eps: float) -> Any:
    over = over_channels(x)
    mu = mean(x, over)
    centred = x - per_channel(mu, x)
    var = mean(centred * centred, over)
    scale = rsqrt(var + eps)
    out = centred * per_channel(scale if weight is None else scale * weight, x)
    return out if bias is None else out + per_channel(bias, x), mu, var


def _batch_norm_grad(
    grad: Array,
    x: Array,
    weight: Array | None = None,
    mu: Array | None = None,
    var: Array | None = None,
    *,
    eps: float = 1e-5,
) -> Any:
    """Gradients of batch_norm with respect to input, weight and bias, from the batch's statistics."""
    x = np.asarray(x)
    over = over_channels(x)
    r = 1 / np.sqrt(np_per_channel(var, x) + eps)
    normal = (x - np_per_channel(mu, x)) * r
    scaled = grad if weight is None else grad * np_per_channel(weight, x)
    dx = r * (
        scaled - np.mean(scaled, axis=over, keepdims=True) - normal * np.mean(scaled * normal, axis=over, keepdims=True)
    )
    return dx, np.sum(grad * normal, axis=over), np.sum(grad, axis=over)


def _infer_batch_norm_grad(specs: Specs, params: Params) -> list[Output]:
    x = tensor_at(specs, 1)
    channels = (x.shape[1],)
    for name, s in zip(("weight", "mean", "var"), specs[2:], strict=True):
        check_shape(name, s, channels)
    w = specs[2].dtype if specs[2] is not None else x.dtype
    return [(x.dtype, x.shape), (w, channels), (w, channels)]


def _batch_norm_grad_decomposed(
    g: TensorLike, x: TensorLike, weight: TensorLike | None, mu: TensorLike, var: TensorLike, *, eps: float
) -> Any:
    over = over_channels(x)
    r = per_channel(rsqrt(var + eps), x)
    normal = (x - per_channel(mu, x)) * r
    scaled = g if weight is None else g * per_channel(weight, x)
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
    traits=Trait.PER_CHANNEL,
    infer=_infer_batch_norm_grad,
    outputs=("dx", "dweight", "dbias"),
    lowering=Decompose(_batch_norm_grad_decomposed),
    samples=_batch_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
)


@reads(bias="")
def _batch_norm_rule(
    g: TensorLike,
    x: TensorLike | None,
    weight: TensorLike | None,
    mean: TensorLike,
    var: TensorLike,
    bias_spec: Spec | None,
    *,
    eps: float,
) -> Any:
    if x is None:
        return None, None, sum_(g, over_channels(g))
    dx, dweight, dbias = batch_norm_grad(g, x, weight, mean, var, eps)
    return dx, None if weight is None else dweight, None if bias_spec is None else dbias


batch_norm = declare(
    _batch_norm,
    name="batch_norm",
    family="norm",
    traits=Trait.PER_CHANNEL,
    public=False,
    infer=_infer_batch_norm,
    outputs=("out", "mean", "var"),
    lowering=Decompose(_batch_norm_decomposed),
    gradient=_batch_norm_rule,
    samples=_batch_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros(2), None), {"eps": 1e-5}, ValueError, "weight has shape")],
)
