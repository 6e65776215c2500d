"""Attention and its gradient: batched products by cuBLAS, with one softmax kernel between them.

Queries, keys and values are passed to cuBLAS with their strides, so that heads that are views of one projection are not
copied. Scores are stored in float32; if they exceed a memory limit, the batch is processed in parts. Under a causal
mask, queries are processed in bands, each with the keys visible to its last query: the other scores are never computed.

Products of half precision run on tensor cores. Probabilities rounded to half precision would lose accuracy, so they are
split into two half-precision terms (as in bf16x2 schemes) and multiplied twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.lowering.attention.problem import describe, refusal, score_dtype
from polyhal_cupy.lowering.attention.products import AttentionProducts
from polyhal_cupy.lowering.attention.softmax import SoftmaxLauncher
from polyhal_cupy.lowering.gemm.cublas import Step
from polyhal_cupy.runtime import Runtime

_UNSUPPORTED = "cuBLAS does not support the strides of an operand"


def _attention(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    q, k, v, mask = inputs
    reason = refusal((q, k, v), mask)
    if reason:
        return Declined(reason)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    problem = describe((q, k, v), mask, t, s, d, e)
    if isinstance(problem, Declined):
        return problem
    itemsize = score_dtype(q.dtype).itemsize
    bands = problem.bands(bool(params["causal"]))
    softmax = SoftmaxLauncher(runtime, problem, q.dtype, mask, bool(params["causal"]), bands[0].rows)
    if softmax.split and not outputs[0].aligned:
        return Declined("the output is not aligned")
    addresses, scores, high, low, accumulator = range(6, 11)
    terms = (high, low) if softmax.split else ()
    parts = problem.parts(itemsize)
    steps: list[Step] = []
    pointer_bytes = 1
    for part in parts:
        products = AttentionProducts(runtime, problem, bands, part, q.dtype, addresses)
        q_part, k_part, v_part = (
            problem.operand(i, o, problem.batch_strides[i], part) for i, o in enumerate((q, k, v))
        )
        normalize = softmax.launch("attention_softmax", part, (scores,), 3, 5, terms)
        if isinstance(normalize, Declined):
            return normalize
        part_steps: list[Step] = [
            *products.scores(scores, q_part, k_part, d, params["scale"], "attention.scores"), normalize,
            *products.weighted_sum(terms or (scores,), v_part, 4, e, accumulator, 1.0, "attention.values"),
        ]  # fmt: skip
        if products.failed:
            return Declined(_UNSUPPORTED)
        steps += [*products.arrays.fill(), *part_steps]
        pointer_bytes = max(pointer_bytes, products.arrays.nbytes)
    elements = parts[0].count * t * s
    term_bytes = (elements * q.dtype.itemsize,) * 2 + (parts[0].count * t * e * 4,) if softmax.split else ()
    return LaunchSequence(steps, (pointer_bytes, elements * itemsize, *term_bytes))


def _attention_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    g, q, k, v, mask, _, lse = inputs
    reason = refusal((q, k, v, g), mask)
    if reason:
        return Declined(reason)
    assert isinstance(g, Spec)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    real = score_dtype(q.dtype)
    if not isinstance(lse, Spec) or lse.dtype is not real or not lse.is_contiguous:
        return Declined("the logsumexp has an unexpected dtype or layout")
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    problem = describe((g, q, k, v), mask, t, s, d, e)
    if isinstance(problem, Declined):
        return problem
    bands = problem.bands(bool(params["causal"]))
    softmax = SoftmaxLauncher(runtime, problem, q.dtype, mask, bool(params["causal"]), bands[0].rows)
    if softmax.split and not all(o.aligned for o in outputs):
        return Declined("the output is not aligned")
    dq, dk, dv = range(7, 10)
    addresses, scores, gradients, p_high, p_low, ds_high, ds_low, accumulator = range(10, 18)
    terms = (p_high, p_low, ds_high, ds_low) if softmax.split else ()
    p, ds = terms[:2] or (scores,), terms[2:] or (gradients,)
    parts = problem.parts(real.itemsize)
    scale = params["scale"]
    steps: list[Step] = []
    pointer_bytes = 1
    for part in parts:
        products = AttentionProducts(runtime, problem, bands, part, q.dtype, addresses)
        g_part, q_part, k_part, v_part = (
            problem.operand(i, o, problem.batch_strides[i], part) for i, o in enumerate((g, q, k, v))
        )
        differentiate = softmax.launch("attention_softmax_grad", part, (scores, gradients), 4, 6, terms)
        if isinstance(differentiate, Declined):
            return differentiate
        part_steps: list[Step] = [
            *products.scores(scores, q_part, k_part, d, scale, "attention.scores"),
            *products.scores(gradients, g_part, v_part, e, 1.0, "attention.gradients"), differentiate,
            *products.weighted_sum(p, g_part, dv, e, accumulator, 1.0, "attention.dv", transposed=True),
            *products.weighted_sum(ds, q_part, dk, d, accumulator, scale, "attention.dk", transposed=True),
            *products.weighted_sum(ds, k_part, dq, d, accumulator, scale, "attention.dq"),
        ]  # fmt: skip
        if products.failed:
            return Declined(_UNSUPPORTED)
        steps += [*products.arrays.fill(), *part_steps]
        pointer_bytes = max(pointer_bytes, products.arrays.nbytes)
    elements = parts[0].count * t * s
    term_bytes = (
        (elements * q.dtype.itemsize,) * 4 + (parts[0].count * max(t * d, s * d, s * e) * 4,) if softmax.split else ()
    )
    return LaunchSequence(steps, (pointer_bytes, *(elements * real.itemsize,) * 2, *term_bytes))


LOWERINGS: dict[str, LoweringFunction] = {"attention": _attention, "attention_grad": _attention_grad}
