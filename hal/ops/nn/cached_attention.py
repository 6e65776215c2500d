"""`cached_attention`: attention of new positions to a key-value cache, whose sequences have lengths of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
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
    tensor_at,
)
from polyhal.hal.ops.layout.axes import transpose
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.views import broadcast_to, reshape
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.nn.attention import attention
from polyhal.hal.ops.nn.softmax import softmax
from polyhal.hal.ops.pointwise.logic import greater, less, less_equal, logical_and
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.pointwise.trigonometry import tanh
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _cached_attention(
    q: Array,
    keys: Array,
    values: Array,
    lengths: Array,
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Any:
    """Attention of q (B, H, T, D) to a cache: keys (B, K, C, D) and values (B, K, C, E), which H/K neighbouring heads share.

    Sequence b has `lengths[b]` (B,) positions before its T queries, whose own keys and values follow in the cache: query i
    attends to positions up to `lengths[b] + i`, with `window` only to the last ones. `scale` defaults to 1/sqrt(D); with
    `softcap` scores x become `softcap * tanh(x / softcap)`. Later positions do not count, whatever they hold.
    """
    q, keys, values = (np.asarray(x) for x in (q, keys, values))
    filled = np.arange(keys.shape[2]) < np.asarray(lengths, np.int64)[:, None] + q.shape[2]
    keys, values = (np.where(filled[:, None, :, None], x, 0) for x in (keys, values))
    shared = q.shape[1] // keys.shape[1]
    keys, values = (np.repeat(x, shared, 1) for x in (keys, values))
    scores = np.matmul(q, np.swapaxes(keys, -1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    place = np.asarray(lengths, np.int64)[:, None, None, None] + np.arange(q.shape[2])[:, None]
    column = np.arange(keys.shape[2])
    seen = column <= place
    if window is not None:
        seen = seen & (column > place - window)
    scores = np.where(seen, scores, -np.inf)
    top = np.max(scores, -1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = np.sum(weights, -1, keepdims=True)
    return np.matmul(weights / np.where(total == 0, 1, total), values)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    q, keys, values, lengths = (tensor_at(specs, i) for i in range(4))
    for name, s in (("q", q), ("keys", keys), ("values", values)):
        if s.ndim != 4 or not s.dtype.is_floating_point:
            raise ValueError(f"{name} is {s}; expected floats with 4 axes")
    (b, h, _, d), (kept, capacity) = q.shape, keys.shape[1:3]
    if keys.shape != (b, kept, capacity, d) or values.shape[:3] != keys.shape[:3] or not kept or h % kept:
        raise ValueError(
            f"q {q.shape}, keys {keys.shape}, values {values.shape} do not fit; expected (B, H, T, D), (B, K, C, D), "
            "(B, K, C, E), H a multiple of K"
        )
    if lengths.shape != (b,) or lengths.dtype is not dtypes.int32:
        raise ValueError(f"lengths {lengths}; expected int32[{b}]")
    if params["window"] is not None and params["window"] < 1:
        raise ValueError(f"window is {params['window']}; expected 1 or more")
    params["scale"] = float(1 / math.sqrt(max(d, 1)) if params["scale"] is None else params["scale"])
    params["softcap"] = None if params["softcap"] is None else float(params["softcap"])
    return [(q.dtype, (*q.shape[:3], values.shape[3]))]


def _decomposed(
    q: TensorLike,
    keys: Any,
    values: Any,
    lengths: TensorLike,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> Any:
    b, h, t, d = q.shape
    kept, capacity, e = int(keys.shape[1]), int(keys.shape[2]), int(values.shape[3])
    shared = h // kept
    # Heads that share keys are an axis of their own; with one query they are further queries.
    rows, lead = (shared, (b, kept)) if t == 1 else (t, (b, kept, shared))
    grouped = reshape(q, (*lead, rows, d))
    column = arange(0, capacity, 1, dtypes.int32)
    # Another text may have left NaN or infinity in later positions, and 0 times it is NaN.
    filled = less(reshape(column, (capacity, 1)), reshape(lengths, (b, 1, 1, 1)) + t)
    keys, values = (where(filled, x if x.dtype is q.dtype else x.cast(dtype=q.dtype), 0.0) for x in (keys, values))
    if t > 1:
        keys, values = (
            broadcast_to(reshape(x, (b, kept, 1, capacity, x.shape[3])), (*lead, capacity, x.shape[3]))
            for x in (keys, values)
        )
    ones = (1,) * (len(lead) - 1)
    place = reshape(lengths, (b, *ones, 1, 1)) + reshape(arange(0, t, 1, dtypes.int32), (t, 1))
    seen = less_equal(column, place)
    if window is not None:
        seen = logical_and(seen, greater(column, place - window))
    if softcap is None:
        out = attention(grouped, keys, values, seen, False, scale)[0]
    else:
        scores = tanh(op_matmul(grouped, transpose(keys)) * (scale / softcap)) * softcap
        out = op_matmul(softmax(where(seen, scores, -math.inf), -1), values)
    return reshape(out, (b, h, t, e))


def _terms(specs: Specs, params: Params) -> int:
    return max(tensor_at(specs, 0).shape[3], tensor_at(specs, 1).shape[2])


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    cases: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((2, 4, 2, 1, 9, 8, 8), {}),
        ((3, 2, 2, 1, 40, 16, 16), {"window": 5, "scale": 0.3}),
        ((2, 8, 1, 1, 70, 32, 32), {"softcap": 2.0}),
        ((2, 4, 2, 3, 20, 8, 12), {"window": 4, "softcap": 3.0}),
        ((1, 3, 3, 2, 33, 5, 5), {}),
        ((2, 2, 1, 24, 50, 16, 16), {"window": 7}),
        ((2, 4, 2, 37, 150, 16, 24), {}),
    ]
    for (b, h, kept, t, c, d, e), params in cases:
        q = rng.uniform(-2, 2, (b, h, t, d))
        keys, values = (rng.uniform(-2, 2, (b, kept, c, n)) for n in (d, e))
        lengths = rng.integers(0, c - t + 1, b).astype(np.int32)
        lengths[0] = c - t
        for i, n in enumerate(lengths + t):
            keys[i, :, n:], values[i, :, n:] = np.nan, np.inf
        out.append(Sample((q, keys, values, lengths), params, differentiable=False))
    q, keys, values = (rng.uniform(-1, 1, (2, 1, n, 16)) for n in (1, 600, 600))
    lengths = np.array([3, 555], np.int32)
    note = "lengths that differ much, in keys that groups share"
    out.append(Sample((q, keys, values, lengths), {}, special=True, note=note))
    return out


def attention_flops(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> int:
    """Return the operations of both products with all positions of a cache."""
    q, values = tensor_at(specs, 0), tensor_at(specs, 2)
    return 2 * math.prod(q.shape[:3]) * values.shape[2] * (q.shape[3] + values.shape[3])


cached_attention = declare(
    _cached_attention,
    name="cached_attention",
    family="attention",
    public=False,
    infer=_infer,
    lowering=Decompose(_decomposed),
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(48.0, floor=4.0, terms=_terms, rounded=1),
    errors=[
        ErrorSample(
            (np.zeros((1, 3, 1, 4)), np.zeros((1, 2, 5, 4)), np.zeros((1, 2, 5, 4)), np.zeros(1, np.int32)),
            {},
            ValueError,
            "do not fit",
        ),
        ErrorSample(
            (np.zeros((1, 2, 1, 4)), np.zeros((1, 2, 5, 4)), np.zeros((1, 2, 5, 4)), np.zeros(2, np.int32)),
            {},
            ValueError,
            "int32",
        ),
    ],
    flops=attention_flops,
    settings=("precision",),
    autocast=Autocast.HALF,
)
