"""`rotary_store`: queries and keys rotated, and keys and values stored in a key-value cache, in one op."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Decompose, ErrorSample, Output, Sample, Specs, Tolerance, declare, tensor_at
from polyhal.hal.ops.indexing.store_rows import store_rows
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.nn.rotary import rotary
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _rotary_store(
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
) -> Any:
    """A cache of `keys` and `values` (B, K, C, D) with T rows per sequence replaced, at `lengths[b]` and after; rotated `q`.

    The rows are `k`, rotated, and `v` (B, K, T, D). `q` (B, H, T, D) and `k` are rotated as by `rotary`, by angles whose
    cosines and sines broadcast to (B, 1, T, n): their first 2 n features, the others are kept.
    """

    def turned(x: np.ndarray) -> np.ndarray:
        wide = 2 * np.shape(cos)[-1]
        return np.concatenate(
            [rotary.op.reference(x[..., :wide], cos, sin, interleaved=interleaved), x[..., wide:]], -1
        )

    stored = (store_rows.op.reference(x, new, lengths)[0] for x, new in ((keys, turned(np.asarray(k))), (values, v)))
    return (*stored, turned(np.asarray(q)))


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    keys, values, q, k, v, lengths, cos, sin = (tensor_at(specs, i) for i in range(8))
    if any(not s.dtype.is_floating_point for s in (keys, values, q, k, v, cos, sin)):
        raise ValueError("expected floats but for the lengths")
    if q.ndim != 4 or k.ndim != 4 or v.shape != k.shape or q.shape[::2] != k.shape[::2] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q {q.shape}, k {k.shape} and v {v.shape} do not fit; expected (B, H, T, D), twice (B, K, T, D)"
        )
    rows = (*k.shape[:2], k.shape[3])
    if any(x.ndim != 4 or (*x.shape[:2], x.shape[3]) != rows for x in (keys, values)) or keys.shape != values.shape:
        raise ValueError(f"keys {keys.shape} and values {values.shape}; expected twice (B, K, C, D), for k {k.shape}")
    if (lengths.shape, lengths.dtype) != (k.shape[:1], dtypes.int32):
        raise ValueError(f"lengths {lengths}; expected int32[{k.shape[0]}]")
    fits = cos.shape == sin.shape and 1 <= cos.ndim <= 4 and 0 < 2 * cos.shape[-1] <= q.shape[3]
    lead = (1,) * (4 - cos.ndim) + cos.shape[:-1]
    if not fits or any(n not in (1, m) for n, m in zip(lead, (q.shape[0], 1, q.shape[2]), strict=True)):
        raise ValueError(f"cosines {cos.shape}, sines {sin.shape}; expected (B, 1, T, n), n up to half of q {q.shape}")
    params["interleaved"] = bool(params["interleaved"])
    return [(keys.dtype, keys.shape), (values.dtype, values.shape), (q.dtype, q.shape)]


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
) -> Any:
    def turned(x: TensorLike) -> Any:
        wide, zeros, ones = 2 * cos.shape[-1], (0,) * 3, (1,) * 4
        if wide == x.shape[3]:
            return rotary(x, cos, sin, interleaved)
        first = slice_(x, (*zeros, 0), (*x.shape[:3], wide), ones)
        rest = slice_(x, (*zeros, wide), (*x.shape[:3], x.shape[3] - wide), ones)
        return concat([rotary(first, cos, sin, interleaved), rest], 3)

    def stored(x: TensorLike, new: TensorLike) -> Any:
        return store_rows(x, new if new.dtype is x.dtype else cast(new, dtype=x.dtype), lengths)[0]

    return stored(keys, turned(k)), stored(values, v), turned(q)


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for (b, h, kept, t, c, d), n, interleaved in [
        ((2, 4, 2, 1, 6, 8), 4, False),
        ((3, 2, 2, 2, 5, 12), 4, False),
        ((1, 6, 1, 3, 9, 10), 5, True),
    ]:
        cache = [rng.uniform(-1, 1, (b, kept, c, d)) for _ in range(2)]
        q, k, v = (rng.uniform(-2, 2, (b, heads, t, d)) for heads in (h, kept, kept))
        lengths = np.array([c - t, 0, c - 1][:b], np.int32)
        angles = rng.uniform(-3, 3, (b, 1, t, n))
        inputs = (*cache, q, k, v, lengths, np.cos(angles), np.sin(angles))
        out.append(Sample(inputs, {"interleaved": interleaved}, differentiable=False))
    return out


def _wrong() -> tuple[Any, ...]:
    cache, row = np.zeros((1, 1, 4, 2)), np.zeros((1, 1, 1, 2))
    return cache, cache, row, row, row, np.zeros(1, np.int32), np.ones((1, 2)), np.ones((1, 2))


rotary_store = declare(
    _rotary_store,
    name="rotary_store",
    family="attention",
    public=False,
    infer=_infer,
    outputs=("stored_keys", "stored_values", "rotated"),
    mutates=(0, 1),
    lowering=Decompose(_decomposed),
    samples=_samples,
    dtypes=(dtypes.float32, dtypes.float16, dtypes.bfloat16),
    tolerance=Tolerance(8.0, floor=4.0),
    errors=[ErrorSample(_wrong(), {}, ValueError, "up to half of q")],
)
