"""`rotary_attention`: attention of one new position per sequence to a key-value cache, which it extends, in one op."""

from __future__ import annotations

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
from polyhal.hal.ops.nn.cached_attention import cached_attention
from polyhal.hal.ops.nn.rotary_store import rotary_store
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _rotary_attention(
    keys: Array,
    values: Array,
    q: Array,
    k: Array,
    v: Array,
    lengths: Array,
    cos: Array,
    sin: Array,
    *,
    interleaved: bool = False,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Any:
    """`rotary_store` of one position per sequence, and the `cached_attention` of its rotated queries to the result."""
    stored_keys, stored_values, turned = rotary_store.op.reference(
        keys, values, q, k, v, lengths, cos, sin, interleaved=interleaved
    )
    attended = cached_attention.op.reference(
        turned, stored_keys, stored_values, lengths, scale=scale, window=window, softcap=softcap
    )
    return stored_keys, stored_values, attended


def _split(params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    attention = {name: params[name] for name in ("scale", "window", "softcap")}
    return {"interleaved": params["interleaved"]}, attention


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    keys, values, q, lengths = (tensor_at(specs, i) for i in (0, 1, 2, 5))
    if q.ndim != 4 or q.shape[2] != 1:
        raise ValueError(f"q is {q}; expected one position per sequence (B, H, 1, D)")
    store, attention = _split(params)
    stored = rotary_store.op.infer(specs, store)
    attended = cached_attention.op.infer((q, keys, values, lengths), attention)
    params.update(store | attention)
    return [*stored[:2], *attended]


def _decomposed(
    keys: TensorLike,
    values: TensorLike,
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    lengths: TensorLike,
    cos: TensorLike,
    sin: TensorLike,
    *,
    interleaved: bool,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> Any:
    stored_keys, stored_values, turned = rotary_store(keys, values, q, k, v, lengths, cos, sin, interleaved)
    attended = cached_attention(turned, stored_keys, stored_values, lengths, scale, window, softcap)
    return stored_keys, stored_values, attended


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for (b, h, kept, c, d), n, params in [
        ((3, 4, 2, 9, 16), 8, {}),
        ((3, 3, 1, 40, 24), 8, {"window": 5, "scale": 0.3, "interleaved": True}),
        ((2, 2, 2, 90, 32), 16, {"softcap": 2.0}),
    ]:
        cache = [rng.uniform(-1, 1, (b, kept, c, d)) for _ in range(2)]
        q, k, v = (rng.uniform(-2, 2, (b, heads, 1, d)) for heads in (h, kept, kept))
        lengths = np.array([c - 1, 0, c // 2][:b], np.int32)
        for x in cache:
            for i, length in enumerate(lengths):
                x[i, :, length:] = np.nan
        angles = rng.uniform(-3, 3, (b, 1, 1, n))
        inputs = (*cache, q, k, v, lengths, np.cos(angles), np.sin(angles))
        out.append(Sample(inputs, params, differentiable=False))
    return out


def _wrong() -> tuple[Any, ...]:
    cache, row = np.zeros((1, 1, 4, 2)), np.zeros((1, 1, 2, 2))
    return cache, cache, row, row, row, np.zeros(1, np.int32), np.ones((1, 1)), np.ones((1, 1))


def _terms(specs: Specs, params: Params) -> int:
    return max(tensor_at(specs, 0).shape[2:])


def _flops(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> int:
    q, keys = tensor_at(specs, 2), tensor_at(specs, 0)
    return 4 * q.size * keys.shape[2]


rotary_attention = declare(
    _rotary_attention,
    name="rotary_attention",
    family="attention",
    public=False,
    infer=_infer,
    outputs=("stored_keys", "stored_values", "attended"),
    mutates=(0, 1),
    lowering=Decompose(_decomposed),
    samples=_samples,
    dtypes=(dtypes.float32, dtypes.float16, dtypes.bfloat16),
    tolerance=Tolerance(48.0, floor=4.0, terms=_terms, rounded=1),
    errors=[ErrorSample(_wrong(), {}, ValueError, "one position per sequence")],
    flops=_flops,
    settings=("precision",),
    autocast=Autocast.HALF,
)
