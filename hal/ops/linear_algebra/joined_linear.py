"""`joined_linear`: products of one input with several weights in one launch, with the norm before and the gate after them.

Graph passes make it where a device has a kernel, which reads the input once: projections to queries, keys and values, and gated
feed-forward networks of few tokens take most of their time in launches otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import infer
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, contiguous
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
    first_tensor,
    tensor_at,
)
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.linear_algebra.linear import linear
from polyhal.hal.ops.nn.norm import rms_norm
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep, call_steps, reference_steps, values_of
from polyhal.hal.ops.quantized.dequantize import sample_blocks
from polyhal.hal.ops.quantized.matmul import quantized_matmul
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _joined_linear(
    *xs: Array,
    eps: float | None = None,
    steps: Sequence[GroupStep] = (),
    out_dtype: DType | None = None,
    format: str | None = None,  # noqa: A002
) -> np.ndarray:
    """Products of x (..., in), the first of `xs`, with the transposes of the others (out, in), one after the other (..., outs).

    With `format`, the others are quantised weights in tiles (`quantized_matmul`). With `eps`, the last of `xs` is instead
    the weight of an RMS norm of x before them. With `steps`, encoded as in `fused_elementwise`, there are two products,
    values 0 and 1, and the last value is the result (..., out).
    """
    x, weights = xs[0], xs[1:]
    if eps is not None:
        x, weights = rms_norm.op.reference(x, xs[-1], eps=eps)[0], xs[1:-1]
    if format is not None:
        products = [quantized_matmul.op.reference(x, w, format=format, in_tiles=True) for w in weights]
    else:
        products = [np.matmul(x, np.swapaxes(w, 0, 1)) for w in weights]
    return np.asarray(reference_steps(products, steps)[-1] if steps else np.concatenate(products, -1))


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, *weights = (tensor_at(specs, i) for i in range(len(specs)))
    if params["eps"] is not None:
        params["eps"] = float(params["eps"])
        ((dtype, shape), _) = infer(
            rms_norm.op, (x, weights.pop()), {"axes": 1, "eps": params["eps"], "out_dtype": None}
        )
        x = contiguous(dtype, shape)
    blocks = None if params["format"] is None else {"format": params["format"], "in_tiles": True, "transposed": False}
    results = [
        linear.op.infer((x, w, None), {})[0] if blocks is None else quantized_matmul.op.infer((x, w), dict(blocks))[0]
        for w in weights
    ]
    if not results or len({dtype for dtype, _ in results}) > 1 or (params["steps"] and len(results) != 2):
        raise ValueError(f"{len(results)} weights, results {results}; expected one dtype, and two weights with steps")
    dtype = params["out_dtype"] or results[0][0]
    if params["steps"]:
        values = [contiguous(dtype, shape) for _, shape in results]
        dtype, shape = values_of(tuple(values), params["steps"])[-1].dtype, results[0][1]
        return [(dtype, shape)]
    return [(dtype, (*x.shape[:-1], sum(shape[-1] for _, shape in results)))]


def _decomposed(
    *xs: TensorLike,
    eps: float | None,
    steps: Sequence[GroupStep],
    out_dtype: DType | None,
    format: str | None,  # noqa: A002
) -> Any:
    x, weights = xs[0], xs[1:]
    if eps is not None:
        x, weights = rms_norm(x, xs[-1], 1, eps)[0], xs[1:-1]
    products = [
        linear(x, w, None) if format is None else quantized_matmul(x, w, format=format, in_tiles=True) for w in weights
    ]
    if out_dtype is not None:
        products = [cast(p, dtype=out_dtype) for p in products]
    return call_steps(products, steps)[-1] if steps else concat(products, x.ndim - 1)


def _terms(specs: Specs, params: Params) -> int:
    """Kernels may round x as in `quantized_matmul`."""
    return first_tensor(specs).shape[-1] * (1 if params["format"] is None else 1024)


GATED: tuple[GroupStep, ...] = (("silu", (0,), ()), ("multiply", (2, 1), ()))
"""The steps of a gated feed-forward network."""


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for lead, k, columns in [((1,), 64, (32, 16, 16)), ((2, 1), 72, (48, 48)), ((3,), 300, (64,)), ((5,), 7, (3, 2))]:
        x, weight = rng.uniform(-1, 1, (*lead, k)), rng.uniform(0.5, 1.5, k)
        weights = [rng.uniform(-1, 1, (n, k)) for n in columns]
        for eps in (None, 1e-5):
            norm = () if eps is None else (weight,)
            gate = GATED if len(set(columns)) == 1 < len(columns) else ()
            for steps in {(), gate}:
                out.append(Sample((x, *weights, *norm), {"eps": eps, "steps": steps}, differentiable=False))
    for name, columns in (("q4_0", (32, 16)), ("q4_k", (48, 48)), ("q6_k", (16,))):
        blocks = [sample_blocks(rng, name, n, 512, True) for n in columns]
        gate = GATED if len(set(columns)) == 1 < len(columns) else ()
        for eps in (None, 1e-5):
            norm = () if eps is None else (rng.uniform(0.5, 1.5, 512),)
            params = {"eps": eps, "steps": gate, "format": name}
            out.append(Sample((rng.uniform(-1, 1, (3, 512)), *blocks, *norm), params, differentiable=False))
    return out


def _flops(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> int:
    x, *weights = (s for s in specs if isinstance(s, Spec))
    return 2 * math.prod(x.shape) * sum(w.shape[0] for w in weights if w.ndim == 2)


joined_linear = declare(
    _joined_linear,
    name="joined_linear",
    family="fused",
    public=False,
    infer=_infer,
    lowering=Decompose(_decomposed),
    samples=_samples,
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((4, 2))), {}, ValueError, "does not fit")],
    dtypes=dtypes.FLOATS,
    # Kernels may round the input times the norm's weight.
    tolerance=Tolerance(24.0, floor=2.0, terms=_terms, rounded=1),
    flops=_flops,
    settings=("precision",),
    autocast=Autocast.HALF,
)
