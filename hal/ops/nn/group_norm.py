"""Group norm. It also returns the statistics that its gradient needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    reads,
    tensor_at,
)
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.nn.batch_norm import np_per_channel, over_channels, per_channel
from polyhal.hal.ops.nn.norm import all_elements, check_shape, float_input, layer_norm
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _np_rows(x: Array, groups: int) -> Any:
    """Reshape to (images, groups, elements of a group)."""
    return np.reshape(x, (x.shape[0], groups, -1 if np.size(x) else 0))


def _group_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, *, groups: int = 1, eps: float = 1e-5
) -> Any:
    """Zero mean and unit variance over each group of neighbouring channels (axis 1) of each image, then scale and shift.

    Returns the result and, for the gradient, mean and 1/standard deviation (images, groups). Source: arXiv:1803.08494.
    """
    x = np.asarray(x)
    rows = _np_rows(x, groups)
    mu, r = np.mean(rows, axis=2), 1 / np.sqrt(np.var(rows, axis=2) + eps)
    out = ((rows - mu[..., None]) * r[..., None]).reshape(x.shape)
    out = out if weight is None else out * np_per_channel(weight, x)
    return out if bias is None else out + np_per_channel(bias, x), mu, r


def _check(x: Spec, params: Params) -> tuple[int, int]:
    """The shape of the statistics. Raises ValueError if the groups do not divide the channels."""
    groups = params["groups"]
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise ValueError(f"{groups} groups of shape {x.shape}; expected (N, C, ...) with C a multiple of the groups")
    return x.shape[0], groups


def _infer_group_norm(specs: Specs, params: Params) -> list[Output]:
    x = float_input(specs)
    statistics = _check(x, params)
    check_shape("weight", specs[1], x.shape[1:2])
    check_shape("bias", specs[2], x.shape[1:2])
    wide = accumulator(x.dtype)
    return [(x.dtype, x.shape), (wide, statistics), (wide, statistics)]


def _rows(x: TensorLike, groups: int) -> Any:
    return reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))


def _group_norm_decomposed(
    x: TensorLike, weight: TensorLike | None, bias: TensorLike | None, *, groups: int, eps: float
) -> Any:
    out, mu, r = layer_norm(_rows(x, groups), None, None, 1, eps)
    out = reshape(out, x.shape)
    out = out if weight is None else out * per_channel(weight, x)
    return out if bias is None else out + per_channel(bias, x), mu, r


def _group_norm_grad(
    grad: Array,
    x: Array,
    weight: Array | None = None,
    mu: Array | None = None,
    r: Array | None = None,
    *,
    groups: int = 1,
) -> Any:
    """Gradients of group_norm with respect to input, weight and bias, from the saved statistics."""
    x = np.asarray(x)
    channels = (0, *range(2, x.ndim))
    deviation = np.asarray(r)[..., None]
    normal = (_np_rows(x, groups) - np.asarray(mu)[..., None]) * deviation
    scaled = _np_rows(grad if weight is None else grad * np_per_channel(weight, x), groups)
    dx = deviation * (
        scaled - np.mean(scaled, axis=2, keepdims=True) - normal * np.mean(scaled * normal, axis=2, keepdims=True)
    )
    return dx.reshape(x.shape), np.sum(grad * normal.reshape(x.shape), axis=channels), np.sum(grad, axis=channels)


def _infer_group_norm_grad(specs: Specs, params: Params) -> list[Output]:
    x = tensor_at(specs, 1)
    statistics = _check(x, params)
    check_shape("weight", specs[2], x.shape[1:2])
    check_shape("mean", specs[3], statistics)
    check_shape("rstd", specs[4], statistics)
    w = specs[2].dtype if specs[2] is not None else x.dtype
    return [(x.dtype, x.shape), (w, x.shape[1:2]), (w, x.shape[1:2])]


def _group_norm_grad_decomposed(
    g: TensorLike, x: TensorLike, weight: TensorLike | None, mu: TensorLike, r: TensorLike, *, groups: int
) -> Any:
    channels = (0, *range(2, x.ndim))
    deviation = reshape(r, (*r.shape, 1))
    normal = (_rows(x, groups) - reshape(mu, (*mu.shape, 1))) * deviation
    scaled = _rows(g if weight is None else g * per_channel(weight, x), groups)
    count = 1.0 / max(scaled.shape[2], 1)
    slope, product = sum_(scaled, 2, True) * count, sum_(scaled * normal, 2, True) * count
    dx = deviation * (scaled - slope - normal * product)
    return reshape(dx, x.shape), sum_(g * reshape(normal, x.shape), channels), sum_(g, channels)


_SHAPES: list[tuple[tuple[int, ...], int]] = [((2, 4), 2), ((3, 6, 5), 3), ((2, 4, 3, 8), 1), ((1, 3, 2, 2), 3)]


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for shape, groups in _SHAPES:
        x, c = rng.uniform(-2, 2, shape) + 0.5, shape[1]
        weight, bias = rng.uniform(0.5, 1.5, c), rng.uniform(-1, 1, c)
        out.append(Sample((x, weight, bias), {"groups": groups, "eps": 1e-3}))
        out.append(Sample((x, None, None), {"groups": groups, "eps": 1e-3}))
    return out


def _grad_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for s in _samples(rng):
        x, weight = s.inputs[:2]
        _, mu, r = _group_norm(x, **s.params)
        inputs = (rng.uniform(-1, 1, x.shape), x, weight, mu, r)
        out.append(Sample(inputs, {"groups": s.params["groups"]}, differentiable=False))
    return out


group_norm_grad: OpFunction = declare(
    _group_norm_grad,
    name="group_norm_grad",
    family="norm",
    infer=_infer_group_norm_grad,
    outputs=("dx", "dweight", "dbias"),
    lowering=Decompose(_group_norm_grad_decomposed),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
)


@reads(bias="")
def _rule(
    g: TensorLike,
    x: TensorLike | None,
    weight: TensorLike | None,
    mean: TensorLike | None,
    rstd: TensorLike | None,
    bias_spec: Spec | None,
    *,
    groups: int,
) -> Any:
    if x is None:
        return None, None, sum_(g, over_channels(g))
    dx, dweight, dbias = group_norm_grad(g, x, weight, mean, rstd, groups)
    return dx, None if weight is None else dweight, None if bias_spec is None else dbias


group_norm: OpFunction = declare(
    _group_norm,
    name="group_norm",
    family="norm",
    public=False,
    infer=_infer_group_norm,
    outputs=("out", "mean", "rstd"),
    lowering=Decompose(_group_norm_decomposed),
    gradient=_rule,
    samples=_samples,
    dtypes=dtypes.FLOATS,
    # Two elements of a group may be close together: their normalized difference is large against eps.
    tolerance=Tolerance(64.0, floor=4.0, terms=all_elements),
    errors=[ErrorSample((np.zeros((2, 3)), None, None), {"groups": 2, "eps": 1e-5}, ValueError, "2 groups of shape")],
)
