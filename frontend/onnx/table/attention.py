"""Attention that a model writes out, joined by `polyhal.onnx.attention_nodes`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

import polyhal as ph
from polyhal.hal.layout import broadcast_shapes
from polyhal.nn import functional
from polyhal.onnx.attention_nodes import DOMAIN, HIDDEN, NAME, WrittenForm
from polyhal.onnx.evaluation_values import as_tensor
from polyhal.onnx.registration import NodeFacts, Value, find, operator
from polyhal.tensor import Tensor


@operator(NAME, domain=DOMAIN, raw=True)
def written_attention(
    queries: Value,
    query_factor: Value,
    keys: Value,
    key_factor: Value,
    values: Value,
    factor: Value,
    mask: Value,
    fill: Value,
    *,
    form: WrittenForm,
    node: NodeFacts,
) -> Any:
    """Compute `softmax(queries @ keys * factor + mask) @ values`: as attention if the operands fit, else as it is written.

    Queries and keys may have factors. Keys are transposed. With a `fill` the mask is a condition. A row in which all is
    hidden is 0, where the model's own softmax may be NaN.
    """
    q, q_scale = _scaled(queries, query_factor, node)
    k, k_scale = _scaled(keys, key_factor, node)
    v = as_tensor(values, node)
    number = 1.0 if factor is None else _number(factor, q.ndim)
    added = _mask(mask, fill, form, q, node)
    if number and (mask is None or added is not None) and _fits(q, k, v, added, form.axis):
        scale = q_scale * k_scale * (1 / number if form.divides else number)
        return functional.scaled_dot_product_attention(q, ph.swapaxes(k, -1, -2), v, added, scale=scale)
    scores = ph.matmul(q * q_scale, k * k_scale)
    if factor is not None:
        by = as_tensor(factor, node)
        scores = scores / by if form.divides else scores * by
    if mask is not None and fill is not None:
        condition, filled = as_tensor(mask, node), as_tensor(fill, node)
        scores = ph.where(condition, filled, scores) if form.hides else ph.where(condition, scores, filled)
    elif mask is not None:
        scores = scores + as_tensor(mask, node)
    softmax = find("", "Softmax", form.softmax_version)
    assert softmax is not None
    options = {"node": replace(node, op="Softmax")} if softmax.takes_node else {}
    weights = softmax.function(scores, axis=form.axis, **options)
    weights = ph.where(ph.isnan(weights), 0.0, weights) if form.clears_nan else weights
    return ph.matmul(weights, v)


def _scaled(one: Value, other: Value, node: NodeFacts) -> tuple[Tensor, float]:
    """Return a tensor and a number whose product is that of two values."""
    if other is None:
        return as_tensor(one, node), 1.0
    for tensor, factor in ((one, other), (other, one)):
        number = _number(factor, tensor.ndim)
        if number is not None:
            return as_tensor(tensor, node), number
    return as_tensor(one, node) * as_tensor(other, node), 1.0


def _number(value: Value, axes: int) -> float | None:
    """Return the element of an array of the host that has only one, and adds no axes to a tensor of `axes` axes."""
    one = isinstance(value, np.ndarray) and value.size == 1 and value.ndim <= axes
    return float(value.item()) if one else None


def _mask(mask: Value, fill: Value, form: WrittenForm, q: Tensor, node: NodeFacts) -> Tensor | None:
    """Return a mask as attention takes it: True where a pair is visible, or numbers to add. None for other forms."""
    if mask is None:
        return None
    given = as_tensor(mask, node)
    if fill is None:
        return given if given.dtype is q.dtype else None
    number = _number(fill, q.ndim)
    if number is None or number > HIDDEN:
        return None
    visible = ph.logical_not(given) if form.hides else given
    return visible if math.isinf(number) else ph.where(visible, 0.0, number).to(q.dtype)


def _fits(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, axis: int) -> bool:
    """Return whether operands are such as attention takes, with transposed keys."""
    if not 2 <= q.ndim == k.ndim == v.ndim or axis % q.ndim != q.ndim - 1:
        return False
    if not q.dtype.is_floating_point or not q.dtype is k.dtype is v.dtype:
        return False
    if q.shape[-1] != k.shape[-2] or k.shape[-1] != v.shape[-2]:
        return False
    lead = broadcast_shapes(q.shape[:-2], k.shape[:-2])
    scores = (*lead, q.shape[-2], k.shape[-1])
    return broadcast_shapes(lead, v.shape[:-2]) == lead and (
        mask is None or (mask.ndim <= len(scores) and broadcast_shapes(mask.shape, scores) == scores)
    )
