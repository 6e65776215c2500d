"""Scaled dot-product attention; forward and backward are one op each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec, broadcast_shapes
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
    depends,
    reads,
    tensor_at,
)
from polyhal.hal.ops.layout.axes import transpose
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.exponential import exp, log
from polyhal.hal.ops.pointwise.logic import equal, greater_equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import max_
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _np_scores(q: Array, k: Array, mask: Array | None, causal: bool, scale: float | None) -> Any:
    q, k = np.asarray(q), np.asarray(k)
    t, s = q.shape[-2], k.shape[-2]
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None:
        mask = np.asarray(mask)
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.arange(s)[None, :] <= np.arange(t)[:, None] + (s - t), scores, -np.inf)
    return scores


def _np_probabilities(scores: Array) -> tuple[Any, Any]:
    """Softmax of each row, and its logsumexp in two parts; a fully masked row gives zeros."""
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0, top)
    e = np.exp(scores - top)
    total = np.sum(e, axis=-1, keepdims=True)
    total = np.where(total == 0, 1, total)
    return e / total, np.concatenate([top, np.log(total)], axis=-1)


def _attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, causal: bool = False, scale: float | None = None
) -> Any:
    """`softmax(q k^T * scale + mask) v` for q (..., T, D), k (..., S, D), v (..., S, E). Source: arXiv:1706.03762.

    `mask` broadcasts to (..., T, S): bool keeps where True, floats are added. `causal` lets query i see keys up to
    i + S - T. `scale` defaults to 1/sqrt(D). Fully masked rows give 0. Returns the result and each row's logsumexp
    (..., T, 2) in two parts: the largest score, and the logarithm of the sum relative to it, which adding a large score
    would round away. Both are 0 for a fully masked row, and without keys.
    """
    p, lse = _np_probabilities(_np_scores(q, k, mask, causal, scale))
    return np.matmul(p, v), lse


def _checked(specs: Specs) -> tuple[Spec, Spec, Spec]:
    """q, k and v. Raises ValueError unless they and the mask fit together."""
    q, k, v = (tensor_at(specs, i) for i in range(3))
    mask = specs[3]
    for name, s in (("q", q), ("k", k), ("v", v)):
        if s.ndim < 2 or not s.dtype.is_floating_point:
            raise ValueError(f"{name} is {s}; expected floats with at least 2 axes")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"q {q.shape}, k {k.shape}, v {v.shape} do not fit; expected (..., T, D), (..., S, D), (..., S, E)"
        )
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(f"q {q.shape}, k {k.shape} and v {v.shape} differ in their leading axes")
    if mask is not None:
        scores = (*q.shape[:-1], k.shape[-2])
        if broadcast_shapes(mask.shape, scores) != scores:
            raise ValueError(f"mask {mask.shape} does not broadcast to {scores}")
    return q, k, v


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    q, _, v = _checked(specs)
    rows = q.shape[:-1]
    params["causal"] = bool(params["causal"])
    params["scale"] = float(1 / math.sqrt(max(q.shape[-1], 1)) if params["scale"] is None else params["scale"])
    return [(dtypes.promote(q.dtype, v.dtype), (*rows, v.shape[-1])), (accumulator(q.dtype), (*rows, 2))]


def _scores(q: TensorLike, k: TensorLike, mask: TensorLike | None, causal: bool, scale: float) -> Any:
    scores = op_matmul(q, transpose(k)) * scale
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype is dtypes.bool_ else scores + mask
    if causal:
        t, s = q.shape[-2], k.shape[-2]
        rows = reshape(arange(s - t, s, 1, dtypes.int32), (t, 1))
        scores = where(greater_equal(rows, reshape(arange(0, s, 1, dtypes.int32), (1, s))), scores, -math.inf)
    return scores


def _decomposed(
    q: TensorLike, k: TensorLike, v: TensorLike, mask: TensorLike | None, *, causal: bool, scale: float
) -> Any:
    scores = _scores(q, k, mask, causal, scale)
    top = max_(scores, -1, True) if k.shape[-2] else full((*scores.shape[:-1], 1), 0.0, scores.dtype)
    top = where(equal(top, -math.inf), 0.0, top)
    e = exp(scores - top)
    total = sum_(e, -1, True)
    total = where(equal(total, 0.0), 1.0, total)
    return op_matmul(e / total, v), concat((top, log(total)), -1)


def _attention_grad(
    grad: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    y: Array | None = None,
    lse: Array | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Any:
    """Gradients of attention with respect to q, k and v, from its result and the logsumexp of each row, in two parts."""
    lse = np.asarray(lse)
    p = np.exp((_np_scores(q, k, mask, causal, scale) - lse[..., :1]) - lse[..., 1:])
    factor = 1 / math.sqrt(np.shape(q)[-1]) if scale is None else scale
    dp = np.matmul(grad, np.swapaxes(v, -1, -2))
    ds = p * (dp - np.sum(grad * np.asarray(y), axis=-1, keepdims=True)) * factor
    return np.matmul(ds, k), np.matmul(np.swapaxes(ds, -1, -2), q), np.matmul(np.swapaxes(p, -1, -2), grad)


def _infer_grad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    _, (_, parts) = _infer(specs[1:5], params)
    if (lse := tensor_at(specs, 6)).shape != parts:
        raise ValueError(f"lse has shape {lse.shape}; expected {parts}")
    return [(s.dtype, s.shape) for s in _checked(specs[1:5])]


def _weights(scores: TensorLike, lse: TensorLike) -> Any:
    """Return the softmax of scores by their logsumexp in two parts."""
    size, steps = (*lse.shape[:-1], 1), (1,) * lse.ndim
    top, logarithm = (slice_(lse, (*(0,) * (lse.ndim - 1), i), size, steps) for i in range(2))
    return exp((scores - top) - logarithm)


def _grad_decomposed(
    g: TensorLike,
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    mask: TensorLike | None,
    out: TensorLike,
    lse: TensorLike,
    *,
    causal: bool,
    scale: float,
) -> Any:
    p = _weights(_scores(q, k, mask, causal, scale), lse)
    # The sum over keys of dp * p equals the sum over features of g * out, which is smaller.
    delta = sum_(g * out, -1, True)
    ds = p * (op_matmul(g, transpose(v)) - delta) * scale
    return op_matmul(ds, k), op_matmul(transpose(ds), q), op_matmul(transpose(p), g)


def _terms(specs: Specs, params: Params) -> int:
    q, k = [s for s in specs if isinstance(s, Spec) and s.ndim >= 2][:2]
    return max(q.shape[-1], k.shape[-2], q.shape[-2])


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for lead, t, s, d, e in [
        ((), 3, 4, 5, 5),
        ((2, 3), 7, 7, 8, 8),
        ((2,), 1, 6, 4, 3),
        ((1, 2), 33, 33, 16, 16),
        ((2,), 17, 40, 32, 32),
    ]:
        q, k, v = (
            rng.uniform(-2, 2, (*lead, t, d)),
            rng.uniform(-2, 2, (*lead, s, d)),
            rng.uniform(-1, 1, (*lead, s, e)),
        )
        keep = rng.random((t, s)) < 0.7
        keep[:, 0] = True
        out.append(Sample((q, k, v, None), {"causal": False}))
        out.append(Sample((q, k, v, None), {"causal": True, "scale": 0.3}))
        out.append(Sample((q, k, v, keep), {"causal": False}))
        out.append(Sample((q, k, v, rng.uniform(-1, 1, (*lead, 1, s))), {"causal": True}))
    masked = np.ones((3, 4), bool)
    masked[1] = False
    q, k, v = rng.uniform(-2, 2, (3, 5)), rng.uniform(-2, 2, (4, 5)), rng.uniform(-1, 1, (4, 5))
    out.append(Sample((q, k, v, masked), {}, special=True, note="a fully masked row"))
    q, k, v = (rng.uniform(-1, 1, (2, n, 16)) for n in (20, 9, 9))
    note = "more queries than keys: the first ones precede every key"
    out.append(Sample((q, k, v, None), {"causal": True}, special=True, note=note))
    mask = np.where(np.arange(20)[:, None] % 3 == 0, -1e9, rng.choice([0.0, -1e9], (20, 9)))
    out.append(Sample((q * 0, k, v, mask), {}, special=True, note="rows with one large number added"))
    return out


def _grad_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for s in _samples(rng):
        result, lse = _attention(*s.inputs, **s.params)
        out.append(
            Sample(
                (rng.uniform(-1, 1, result.shape), *s.inputs, result, lse.astype(np.float32)),
                s.params,
                special=s.special,
                differentiable=False,
            )
        )
    return out


def _grad_flops(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> int:
    """Five products: the scores again, and the gradients of probabilities, queries, keys and values."""
    q, k, v = (tensor_at(specs, i) for i in (1, 2, 3))
    return 2 * math.prod(q.shape[:-1]) * k.shape[-2] * (3 * q.shape[-1] + 2 * v.shape[-1])


attention_grad = declare(
    _attention_grad,
    name="attention_grad",
    family="attention",
    infer=_infer_grad,
    outputs=("dq", "dk", "dv"),
    lowering=Decompose(_grad_decomposed),
    samples=_grad_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(32.0, floor=4.0, terms=_terms, rounded=1),
    flops=_grad_flops,
    settings=("precision", "deterministic"),
    autocast=Autocast.HALF,
)


@depends(lse="q k mask")
@reads(v="q k mask lse")
def _rule(
    g: TensorLike,
    q: TensorLike,
    k: TensorLike,
    v: TensorLike | None,
    mask: TensorLike | None,
    out: TensorLike | None,
    lse: TensorLike,
    v_spec: Spec,
    needs: tuple[bool, ...],
    *,
    causal: bool,
    scale: float | None,
) -> Any:
    if v is None:  # its gradient reads neither values nor results
        v, out = full(v_spec.shape, 0.0, v_spec.dtype), g
    dq, dk, dv = attention_grad(g, q, k, v, mask, out, lse, causal, scale)
    if len(needs) < 4 or not needs[3]:
        return dq, dk, dv, None
    # Learned masks are rare: their gradient recomputes the scores, so that the others do not pay for it.
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    p = _weights(_scores(q, k, mask, causal, factor), lse)
    return dq, dk, dv, p * (op_matmul(g, transpose(v)) - sum_(g * out, -1, True))


def _flops(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> int:
    q, k, v = _checked(specs)
    return outputs[1].size * k.shape[-2] * (q.shape[-1] + v.shape[-1])


attention = declare(
    _attention,
    name="attention",
    family="attention",
    public=False,
    infer=_infer,
    outputs=("out", "lse"),
    lowering=Decompose(_decomposed),
    gradient=_rule,
    samples=_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(32.0, floor=2.0, terms=_terms, rounded=1),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((4, 2)), np.zeros((4, 2)), None), {}, ValueError, "do not fit")],
    flops=_flops,
    settings=("precision",),
    autocast=Autocast.HALF,
)
