"""Batch norm, the sum with a tensor and relu as one op: the end of a residual block. Graph passes make it.

Its gradient needs no op: that of relu reads the result, and batch norm's the statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.ops.declare import OPS, Decompose, Output, Params, Sample, Specs, Tolerance, declare, tensor_at
from polyhal.hal.ops.fusion import Pattern
from polyhal.hal.ops.nn.batch_norm import batch_norm
from polyhal.hal.ops.nn.batch_norm_relu import batch_norm_samples, calls
from polyhal.hal.ops.nn.norm import all_elements, check_shape
from polyhal.hal.ops.pointwise.activation import relu
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.ops.traits import Trait

_BATCH_NORM = OPS["batch_norm"]


def _batch_norm_add_relu(
    x: Array, addend: Array, weight: Array | None = None, bias: Array | None = None, *, eps: float = 1e-5
) -> Any:
    """`relu(batch_norm(x) + addend)`, and the batch's mean and (biased) variance per channel."""
    out, mu, var = _BATCH_NORM.reference(x, weight, bias, eps=eps)
    return np.maximum(out + addend, 0), mu, var


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, addend, *parameters = specs
    check_shape("addend", addend, tensor_at(specs, 0).shape)
    return list(_BATCH_NORM.infer((x, *parameters), params))


def _decomposed(
    x: TensorLike, addend: TensorLike, weight: TensorLike | None, bias: TensorLike | None, *, eps: float
) -> Any:
    out, mu, var = batch_norm(x, weight, bias, eps)
    return relu(out + addend), mu, var


def _calls(x: Spec) -> Iterator[tuple[Specs, Params]]:
    for (_, *parameters), params in calls(x):
        yield (x, x, *parameters), params


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [
        replace(s, inputs=(s.inputs[0], rng.uniform(-1, 1, s.inputs[0].shape), *s.inputs[1:]))
        for s in batch_norm_samples(rng)
    ]


batch_norm_add_relu = declare(
    _batch_norm_add_relu,
    name="batch_norm_add_relu",
    family="norm",
    traits=Trait.PER_CHANNEL,
    public=False,
    infer=_infer,
    outputs=("out", "mean", "var"),
    lowering=Decompose(_decomposed),
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(16.0, floor=4.0, terms=all_elements),
    fuses=Pattern(_calls),
)
