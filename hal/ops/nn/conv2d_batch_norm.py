"""Convolution followed by batch norm as one op: products compute statistics of their results before they store them.

Graph passes make it where the device has a kernel for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.ops.declare import OPS, Decompose, Output, Params, Sample, Specs, Tolerance, declare, tensor_at
from polyhal.hal.ops.nn.batch_norm import batch_norm
from polyhal.hal.ops.nn.convolution import conv2d
from polyhal.hal.ops.nn.norm import check_shape
from polyhal.hal.ops.pointwise.activation import relu as op_relu
from polyhal.hal.ops.tensor_like import Array, TensorLike

Pair = tuple[int, int]
_CONV2D, _BATCH_NORM = OPS["conv2d"], OPS["batch_norm"]


def _conv2d_batch_norm(
    x: Array,
    weight: Array,
    addend: Array | None = None,
    scale: Array | None = None,
    shift: Array | None = None,
    *,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    eps: float = 1e-5,
    relu: bool = False,
) -> Any:
    """Batch norm of conv2d, plus an addend, then relu if `relu` is set.

    Returns the result, the batch's mean and (biased) variance per channel, and the convolution.
    """
    product = _CONV2D.reference(x, weight, None, stride=stride, padding=padding, dilation=dilation, groups=1)
    out, mu, var = _BATCH_NORM.reference(product, scale, shift, eps=eps)
    out = out if addend is None else out + addend
    return np.maximum(out, 0) if relu else out, mu, var, product


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, weight, addend, *parameters = specs
    (product,) = _CONV2D.infer((x, weight, None), {**params, "groups": 1})
    check_shape("addend", addend, product[1])
    return [*_BATCH_NORM.infer((contiguous(*product), *parameters), params), product]


def _decomposed(
    x: TensorLike,
    weight: TensorLike,
    addend: TensorLike | None,
    scale: TensorLike | None,
    shift: TensorLike | None,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    eps: float,
    relu: bool,
) -> Any:
    product = conv2d(x, weight, None, stride, padding, dilation, 1)
    out, mu, var = batch_norm(product, scale, shift, eps)
    out = out if addend is None else out + addend
    return op_relu(out) if relu else out, mu, var, product


def _samples(rng: np.random.Generator) -> list[Sample]:
    params = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 1)}
    x, weight = rng.uniform(-1, 1, (3, 2, 5, 4)), rng.uniform(-1, 1, (4, 2, 3, 2))
    addend, scale, shift = rng.uniform(-1, 1, (3, 4, 3, 3)), rng.uniform(0.5, 1.5, 4), rng.uniform(-1, 1, 4)
    norm = {"eps": 1e-2}
    return [
        Sample((x, weight, addend, scale, shift), {**params, **norm, "relu": True}, differentiable=False),
        Sample((x, weight, None, None, shift), {**params, **norm, "relu": False}, differentiable=False),
    ]


def _terms(specs: Specs, params: Params) -> int:
    return tensor_at(specs, 0).size


conv2d_batch_norm = declare(
    _conv2d_batch_norm,
    name="conv2d_batch_norm",
    family="convolution",
    public=False,
    infer=_infer,
    outputs=("out", "mean", "var", "product"),
    lowering=Decompose(_decomposed),
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=_terms),
    flops=lambda specs, outs, params: 2 * outs[3].size * int(np.prod(tensor_at(specs, 1).shape[1:])),
)
