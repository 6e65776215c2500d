"""`quantized_cached_attention`: attention to a key-value cache of 8-bit integers with a scale per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import (
    Autocast,
    Decompose,
    ErrorSample,
    Output,
    Sample,
    Specs,
    declare,
    tensor_at,
)
from polyhal.hal.ops.nn.cached_attention import attention_flops, cached_attention
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _quantized_cached_attention(
    q: Array,
    keys: Array,
    values: Array,
    lengths: Array,
    key_scales: Array,
    value_scales: Array,
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> Any:
    """`cached_attention` to int8 keys (B, K, C, D) and values (B, K, C, E) times the scales (B, K, C, 1) of their rows."""
    keys, values = (
        np.asarray(x).astype(np.result_type(np.asarray(s), np.float32)) * np.asarray(s)
        for x, s in ((keys, key_scales), (values, value_scales))
    )
    return cached_attention.op.reference(q, keys, values, lengths, scale=scale, window=window, softcap=softcap)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    q, keys, values, lengths, *scales = (tensor_at(specs, i) for i in range(6))
    for name, x, s in zip(("keys", "values"), (keys, values), scales, strict=True):
        if x.dtype is not dtypes.int8:
            raise ValueError(f"{name} is {x}; expected int8")
        if s.shape != (*x.shape[:-1], 1) or not s.dtype.is_floating_point:
            raise ValueError(f"the scales of {name} {x.shape} are {s}; expected floats of shape {(*x.shape[:-1], 1)}")
    return list(cached_attention.op.infer((q, *(x._replace(dtype=q.dtype) for x in (keys, values)), lengths), params))


def _decomposed(
    q: TensorLike,
    keys: Any,
    values: Any,
    lengths: TensorLike,
    key_scales: Any,
    value_scales: Any,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> Any:
    rows = (x.cast(dtype=s.dtype) * s for x, s in ((keys, key_scales), (values, value_scales)))
    keys, values = (x if x.dtype is q.dtype else x.cast(dtype=q.dtype) for x in rows)
    return cached_attention(q, keys, values, lengths, scale, window, softcap)


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for (b, h, kept, t, c, d, e), params in [
        ((2, 4, 2, 1, 9, 8, 8), {}),
        ((3, 2, 2, 1, 40, 16, 16), {"window": 5, "scale": 0.3}),
        ((2, 8, 1, 1, 70, 32, 32), {"softcap": 2.0}),
        ((2, 4, 2, 3, 20, 8, 12), {"window": 4, "softcap": 3.0}),
        ((1, 3, 3, 2, 33, 5, 5), {}),
        ((2, 4, 2, 37, 150, 16, 24), {}),
    ]:
        q = rng.uniform(-2, 2, (b, h, t, d))
        keys, values = (rng.integers(-127, 128, (b, kept, c, n)).astype(np.int8) for n in (d, e))
        # Powers of two, so that the scaled rows of all dtypes are exact.
        scales = [2.0 ** rng.integers(-8, -5, (b, kept, c, 1)) for _ in range(2)]
        lengths = rng.integers(0, c - t + 1, b).astype(np.int32)
        lengths[0] = c - t
        if t == 1:  # positions that a later query may see are finite
            for s in scales:
                for i, n in enumerate(lengths + t):
                    s[i, :, n:] = np.nan
        out.append(Sample((q, keys, values, lengths, *scales), params, differentiable=False))
    return out


def _wrong(**changed: Any) -> tuple[Any, ...]:
    good = {
        "q": np.zeros((1, 2, 1, 4)),
        "keys": np.zeros((1, 2, 5, 4), np.int8),
        "values": np.zeros((1, 2, 5, 4), np.int8),
        "lengths": np.zeros(1, np.int32),
        "key_scales": np.ones((1, 2, 5, 1)),
        "value_scales": np.ones((1, 2, 5, 1)),
    }
    return tuple((good | changed).values())


quantized_cached_attention = declare(
    _quantized_cached_attention,
    name="quantized_cached_attention",
    family="attention",
    public=False,
    infer=_infer,
    lowering=Decompose(_decomposed),
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=cached_attention.op.tests.tolerance,
    errors=[
        ErrorSample(_wrong(keys=np.zeros((1, 2, 5, 4))), {}, ValueError, "expected int8"),
        ErrorSample(_wrong(value_scales=np.ones((1, 2, 5, 4))), {}, ValueError, "scales of values"),
    ],
    flops=attention_flops,
    settings=("precision",),
    autocast=Autocast.HALF,
)
