"""`sample_tokens`: token ids drawn from logits, with the sampling parameters of each sequence in device memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Decompose, ErrorSample, Output, Sample, Specs, Tolerance, declare, tensor_at
from polyhal.hal.ops.indexing.along_axis import take_along_axis
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.arithmetic import abs_
from polyhal.hal.ops.pointwise.exponential import exp
from polyhal.hal.ops.pointwise.logic import (
    bitwise_xor,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
)
from polyhal.hal.ops.pointwise.selection import clip, maximum, where
from polyhal.hal.ops.random.philox import MULTIPLIERS, ROUNDS, WEYL, multiply_words, philox, shifted_right, signed_word
from polyhal.hal.ops.reductions.extrema import max_, min_
from polyhal.hal.ops.reductions.positions import argmax
from polyhal.hal.ops.reductions.scan import cumsum
from polyhal.hal.ops.reductions.sort import sort_pairs
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _probabilities(z: Any, temperature: float, k: int, p: float, lowest: float, typical: float) -> np.ndarray:
    """Return the weights (V,) of tokens with logits (V,), in float64."""
    z = z / temperature
    e = np.exp(z - z.max())
    if 0 < k < e.size:
        e = np.where(e >= np.sort(e)[-k], e, 0.0)
    if p < 1:
        falling = np.sort(e)[::-1]
        before = np.cumsum(falling) - falling
        e = np.where(e >= falling[max(int(np.count_nonzero(before < p * e.sum())) - 1, 0)], e, 0.0)
    e = np.where(e >= lowest, e, 0.0)
    if typical < 1:
        shares = e / e.sum()
        logs = np.log(np.where(shares > 0, shares, 1.0))
        distance = np.where(shares > 0, np.abs(-logs + np.sum(shares * logs)), math.inf)
        order = np.argsort(distance, kind="stable")
        before = np.cumsum(shares[order]) - shares[order]
        e = np.where(distance <= distance[order[max(int(np.count_nonzero(before < typical)) - 1, 0)]], e, 0.0)
    return e


def _sample_tokens(
    logits: Array,
    temperature: Array,
    top_k: Array,
    top_p: Array,
    min_p: Array,
    typical_p: Array,
    seeds: Array,
    counters: Array,
) -> Any:
    """Token ids int32 (B,) drawn from logits (B, V), by parameters (B,) of each row.

    Logits are divided by `temperature`; 0 selects the most likely token. Then tokens are dropped, each time by the
    probabilities of the tokens that remain: all but the `top_k` most likely ones (0: none), all but the most likely ones
    with the total probability `top_p` (1: none; Holtzman et al., arXiv:1904.09751), those less likely than `min_p` times the
    most likely one, and all but the ones whose information is closest to its mean with the total probability `typical_p`
    (1: none; Meister et al., arXiv:2202.00666). Equally likely tokens are all kept or all dropped. The drawn number is word 0
    of block `counters` (B,) under the key `seeds` (B, 2), both int32; see `random_bits`.
    """
    out = np.zeros(len(logits), np.int32)
    for b, row in enumerate(np.asarray(logits, np.float64)):
        if temperature[b] == 0:
            out[b] = np.argmax(row)
            continue
        p, lowest, typical = (float(x[b]) for x in (top_p, min_p, typical_p))
        weights = _probabilities(row, float(temperature[b]), int(top_k[b]), p, lowest, typical)
        low, high = (int(word) & 0xFFFFFFFF for word in np.asarray(seeds)[b])
        word = int(philox(high << 32 | low, int(counters[b]) & 0xFFFFFFFF, 1)[0, 0])
        sums = np.cumsum(weights)
        target = (word >> 8) * 2.0**-24 * sums[-1]
        out[b] = np.count_nonzero((sums <= target) & (sums < sums[-1]))
    return out


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    logits = tensor_at(specs, 0)
    if logits.ndim != 2 or not logits.dtype.is_floating_point or not logits.shape[1]:
        raise ValueError(f"logits {logits}; expected floats (B, V)")
    rows = logits.shape[0]
    for name, i in (("temperature", 1), ("top_p", 3), ("min_p", 4), ("typical_p", 5)):
        if (s := tensor_at(specs, i)).shape != (rows,) or not s.dtype.is_floating_point:
            raise ValueError(f"{name} {s}; expected floats ({rows},)")
    for name, i, shape in (("top_k", 2, (rows,)), ("seeds", 6, (rows, 2)), ("counters", 7, (rows,))):
        if (s := tensor_at(specs, i)).shape != shape or s.dtype is not dtypes.int32:
            raise ValueError(f"{name} {s}; expected int32 {shape}")
    return [(dtypes.int32, (rows,))]


def _uniforms(seeds: TensorLike, counters: TensorLike) -> Any:
    """Return a number in [0, 1) per row (B, 1), a multiple of 2^-24: Philox4x32-10 on int32."""
    rows = counters.shape[0]
    k0, k1 = (reshape(slice_(seeds, (0, i), (rows, 1), (1, 1)), (rows,)) for i in range(2))
    c0 = counters
    c1 = c2 = c3 = bitwise_xor(c0, c0)
    for i in range(ROUNDS):
        high0, low0 = multiply_words(c0, MULTIPLIERS[0])
        high1, low1 = multiply_words(c2, MULTIPLIERS[1])
        c0, c1 = bitwise_xor(bitwise_xor(high1, c1), k0), low1
        c2, c3 = bitwise_xor(bitwise_xor(high0, c3), k1), low0
        if i + 1 < ROUNDS:
            k0, k1 = k0 + signed_word(WEYL[0]), k1 + signed_word(WEYL[1])
    return reshape(shifted_right(c0, 8).cast(dtype=dtypes.float32) * 2.0**-24, (rows, 1))


def _decomposed(
    logits: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any, typical_p: Any, seeds: Any, counters: Any
) -> Any:
    rows, size = logits.shape
    x = logits if logits.dtype is dtypes.float32 else logits.cast(dtype=dtypes.float32)
    heat, p, lowest, typical = (
        reshape(t.cast(dtype=dtypes.float32), (rows, 1)) for t in (temperature, top_p, min_p, typical_p)
    )
    best = argmax(x, 1).cast(dtype=dtypes.int32)
    z = x / where(equal(heat, 0.0), 1.0, heat)
    z = z - max_(z, 1, True)
    e = exp(z)
    # Top-k, top-p and min-p each keep the tokens above a threshold, found in the sorted weights.
    falling = sort_pairs(e, 1, True)[0]
    k = reshape(top_k, (rows, 1))
    last = take_along_axis(falling, clip(k - 1, 0, size - 1), 1)
    threshold = where(logical_and(greater(k, 0), less(k, size)), last, 0.0)
    kept = where(greater_equal(falling, threshold), falling, 0.0)
    before = cumsum(kept, 1) - kept
    inside = logical_and(logical_or(less(before, p * sum_(kept, 1, True)), equal(before, 0.0)), greater(kept, 0.0))
    nucleus = min_(where(inside, kept, math.inf), 1, True)
    threshold = maximum(maximum(threshold, where(less(p, 1.0), nucleus, 0.0)), lowest)
    kept = where(greater_equal(e, threshold), e, 0.0)
    total = sum_(kept, 1, True)
    shares = kept / total
    distance = abs_(sum_(shares * z, 1, True) - z)
    nearest, order = sort_pairs(where(greater(kept, 0.0), distance, math.inf), 1, False)
    before = cumsum(take_along_axis(shares, order, 1), 1) - take_along_axis(shares, order, 1)
    inside = logical_and(logical_or(less(before, typical), equal(before, 0.0)), less(nearest, math.inf))
    farthest = max_(where(inside, nearest, 0.0), 1, True)
    near = less_equal(distance, farthest)
    kept = where(logical_or(near, greater_equal(typical, 1.0)), kept, 0.0)
    sums = cumsum(kept, 1)
    whole = slice_(sums, (0, size - 1), (rows, 1), (1, 1))
    passed = logical_and(less_equal(sums, _uniforms(seeds, counters) * whole), less(sums, whole))
    drawn = sum_(passed.cast(dtype=dtypes.int32), 1).cast(dtype=dtypes.int32)
    return where(equal(reshape(heat, (rows,)), 0.0), best, drawn)


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for size in (7, 70, 3000):
        rows = 9
        logits = rng.normal(0, 2, (rows, size))
        temperature = np.array([0, 1, 0.5, 1, 1, 1, 2, 1, 1.0])
        top_k = np.array([0, 0, 3, 0, 0, 0, 5, 1, size], np.int32)
        top_p = np.array([1, 1, 1, 0.7, 1, 1, 0.9, 1, 1e-6])
        min_p = np.array([0, 0, 0, 0, 0.1, 0, 0.05, 0, 0])
        typical = np.array([1, 1, 1, 1, 1, 0.8, 0.5, 1, 1])
        seeds = rng.integers(-(2**31), 2**31, (rows, 2)).astype(np.int32)
        counters = rng.integers(0, 1000, rows).astype(np.int32)
        inputs = (logits, temperature, top_k, top_p, min_p, typical, seeds, counters)
        out.append(Sample(inputs, {}, differentiable=False))
    return out


def _number(value: float, rows: int = 1) -> np.ndarray:
    return np.full(rows, value)


sample_tokens = declare(
    _sample_tokens,
    name="sample_tokens",
    family="random",
    public=False,
    infer=_infer,
    lowering=Decompose(_decomposed),
    samples=_samples,
    dtypes=(dtypes.float32,),
    tolerance=Tolerance(0.0),
    errors=[
        ErrorSample(
            (
                np.zeros((1, 4)),
                _number(1, 2),
                np.zeros(1, np.int32),
                *(_number(1) for _ in range(3)),
                np.zeros((1, 2), np.int32),
                np.zeros(1, np.int32),
            ),
            {},
            ValueError,
            "temperature",
        )
    ],
)
