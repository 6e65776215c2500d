"""Batch norm followed by relu as one op, and its gradient. Graph passes make it where the device has kernels for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.declare import OPS, Decompose, Output, Params, Sample, Specs, Tolerance, declare
from polyhal.hal.ops.fusion import ANY_NUMBER, Pattern, Spelling
from polyhal.hal.ops.nn.batch_norm import batch_norm, batch_norm_grad, np_per_channel, per_channel
from polyhal.hal.ops.nn.norm import all_elements
from polyhal.hal.ops.pointwise.activation import relu, relu_grad
from polyhal.hal.ops.pointwise.exponential import rsqrt
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.ops.traits import Trait

_BATCH_NORM, _BATCH_NORM_GRAD = OPS["batch_norm"], OPS["batch_norm_grad"]


def _batch_norm_relu(x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5) -> Any:
    """`relu(batch_norm(x))`, and the batch's mean and (biased) variance per channel."""
    out, mu, var = _BATCH_NORM.reference(x, weight, bias, eps=eps)
    return np.maximum(out, 0), mu, var


def _decomposed(x: TensorLike, weight: TensorLike | None, bias: TensorLike | None, *, eps: float) -> Any:
    out, mu, var = batch_norm(x, weight, bias, eps)
    return relu(out), mu, var


def calls(x: Spec) -> Iterator[tuple[Specs, Params]]:
    """Yield calls with scale and shift or without; in mixed precision they have a wider dtype than `x`."""
    for dtype in dict.fromkeys((x.dtype, accumulator(x.dtype))) if x.ndim > 1 else ():
        channels = contiguous(dtype, x.shape[1:2])
        for weight, bias in itertools.product((channels, None), repeat=2):
            if weight or bias or dtype is x.dtype:
                yield (x, weight, bias), {"eps": ANY_NUMBER}


def _recorded_grad(
    g: TensorLike,
    x: TensorLike,
    weight: TensorLike | None,
    bias: TensorLike | None,
    mu: TensorLike,
    var: TensorLike,
    *,
    eps: float,
) -> Spelling:
    """As the tape records it: from the result and the statistics of the forward pass, which stays."""
    out, mu, var = batch_norm_relu(x, weight, bias, eps)
    results = batch_norm_grad(relu_grad(g, out), x, weight, mu, var, eps)
    return Spelling(results, (g, x, weight, bias, mu, var))


def _grad_calls(dx: Spec) -> Iterator[tuple[Specs, Params]]:
    for inputs, params in calls(dx):
        statistic = contiguous(accumulator(dx.dtype), dx.shape[1:2])
        yield (dx, *inputs, statistic, statistic), params


def _batch_norm_relu_grad(
    grad: Array,
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    mu: Array | None = None,
    var: Array | None = None,
    *,
    eps: float = 1e-5,
) -> Any:
    """Gradients of batch_norm_relu with respect to input, weight and bias, from the batch's statistics."""
    out = (x - np_per_channel(mu, x)) / np.sqrt(np_per_channel(var, x) + eps)
    out = out if weight is None else out * np_per_channel(weight, x)
    out = out if bias is None else out + np_per_channel(bias, x)
    return _BATCH_NORM_GRAD.reference(np.where(out > 0, grad, 0), x, weight, mu, var, eps=eps)


def _infer_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    g, x, weight, bias, *statistics = specs
    _BATCH_NORM.infer((x, weight, bias), params)
    return list(_BATCH_NORM_GRAD.infer((g, x, weight, *statistics), params))


def _grad_decomposed(
    g: TensorLike,
    x: TensorLike,
    weight: TensorLike | None,
    bias: TensorLike | None,
    mu: TensorLike,
    var: TensorLike,
    *,
    eps: float,
) -> Any:
    r = rsqrt(var + eps)
    out = (x - per_channel(mu, x)) * per_channel(r if weight is None else r * weight, x)
    out = out if bias is None else out + per_channel(bias, x)
    return batch_norm_grad(relu_grad(g, out), x, weight, mu, var, eps)


def batch_norm_samples(rng: np.random.Generator) -> list[Sample]:
    """Return the samples of batch norm, for ops that graph passes make of it."""
    samples = _BATCH_NORM.tests.samples
    return [] if samples is None else [replace(s, differentiable=False) for s in samples(rng)]


def _grad_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for s in batch_norm_samples(rng):
        x = s.inputs[0]
        _, mu, var = _BATCH_NORM.reference(x, eps=s.params["eps"])
        out.append(replace(s, inputs=(rng.uniform(-1, 1, x.shape), *s.inputs, mu, var)))
    return out


batch_norm_relu = declare(
    _batch_norm_relu,
    name="batch_norm_relu",
    family="norm",
    traits=Trait.PER_CHANNEL,
    public=False,
    infer=_BATCH_NORM.infer,
    outputs=("out", "mean", "var"),
    lowering=Decompose(_decomposed),
    samples=batch_norm_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
    fuses=Pattern(calls),
)
batch_norm_relu_grad = declare(
    _batch_norm_relu_grad,
    name="batch_norm_relu_grad",
    family="norm",
    traits=Trait.PER_CHANNEL,
    public=False,
    infer=_infer_grad,
    outputs=("dx", "dweight", "dbias"),
    lowering=Decompose(_grad_decomposed),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
    spellings=[_recorded_grad],
    fuses=Pattern(_grad_calls),
)
