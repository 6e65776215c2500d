"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, View, broadcast_shapes, broadcast_strides
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.movement import permute, reshape, transpose
from polyhal.hal.ops.opdef import CoreCall, CoreInput, ErrorSample, Output, Params, Sample, Specs, Tolerance, declare
from polyhal.hal.ops.reduction import sum_
from polyhal.hal.protocol import ComputeBackend


def _matrices(specs: Specs) -> tuple[Spec, Spec]:
    x, y = specs[:2]
    assert isinstance(x, Spec)
    assert isinstance(y, Spec)
    return x, y


def _matmul(x: Any, y: Any) -> Any:
    """Matrix product of the last two axes, broadcast over the others: (..., M, K) @ (..., K, N)."""
    return np.matmul(x, y)


def _infer_matmul(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, y = _matrices(specs)
    if x.ndim < 2 or y.ndim < 2:
        raise ValueError(f"shapes {x.shape} and {y.shape}; expected at least 2 axes each")
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"inner lengths differ: {x.shape} @ {y.shape} multiplies {x.shape[-1]} by {y.shape[-2]}")
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return [(dtypes.promote(x.dtype, y.dtype), (*batch, x.shape[-2], y.shape[-1]))]


def _matmul_core(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    (x, y), (out,) = _matrices(specs), outputs
    batch, (m, k), n = out.shape[:-2], x.shape[-2:], y.shape[-1]
    count = int(np.prod(batch, dtype=int))

    def spread(s: Spec) -> View:
        shape = (*batch, *s.shape[-2:])
        return View(shape, broadcast_strides(s.shape, s.strides, shape))

    inputs = (CoreInput(out.dtype, (count, m, k), spread(x)), CoreInput(out.dtype, (count, k, n), spread(y)))
    return CoreCall("matmul", backend.matmul, inputs, out.dtype, (count, m, n))


def _matmul_gradient(g: Any, x: Any, y: Any, needs: tuple[bool, ...]) -> Any:
    dx = op_matmul(g, transpose(y)) if needs[0] else None
    if not needs[1]:
        return dx, None
    if y.ndim == 2 and x.ndim > 2:
        # One large product instead of a batch of small ones that would have to be summed.
        x, g = reshape(x, (-1, x.shape[-1])), reshape(g, (-1, g.shape[-1]))
    return dx, op_matmul(transpose(x), g)


def _inner(specs: Specs, params: Params) -> int:
    return specs[0].shape[-1] if specs[0] is not None else 1


def _matmul_samples(rng: np.random.Generator) -> list[Sample]:
    shapes = [
        ((3, 4), (4, 5)),
        ((1, 1), (1, 1)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (3, 4, 2)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
        ((33, 65), (65, 17)),
        ((70, 40), (40, 130)),
    ]
    return [Sample((rng.uniform(-1, 1, a), rng.uniform(-1, 1, b))) for a, b in shapes]


op_matmul = declare(
    _matmul,
    name="matmul",
    family="contraction",
    infer=_infer_matmul,
    core=_matmul_core,
    gradient=_matmul_gradient,
    samples=_matmul_samples,
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    tolerance=Tolerance(1.0, terms=_inner),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((4, 2))), {}, ValueError, "inner lengths differ")],
    flops=lambda specs, outs, params: 2 * outs[0].size * specs[0].shape[-1],
    multiplies=True,
)


@composite()
def matmul(x: Any, y: Any) -> Any:
    """Matrix product as NumPy's: 1-D inputs are vectors, further axes broadcast: (..., M, K) @ (..., K, N)."""
    nx, ny = getattr(x, "ndim", 2), getattr(y, "ndim", 2)
    if nx >= 2 and ny >= 2:
        return op_matmul(x, y)
    if not nx or not ny:
        raise ValueError(f"[matmul] shapes {x.shape} and {y.shape}; expected at least one axis each; use * for scaling")
    rows = reshape(x, (1, -1)) if nx == 1 else x
    columns = reshape(y, (-1, 1)) if ny == 1 else y
    out = op_matmul(rows, columns)
    if nx == 1:
        out = reshape(out, (*out.shape[:-2], out.shape[-1]))
    return reshape(out, out.shape[:-1]) if ny == 1 else out


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """`x @ weight.T + bias`: x (..., in), weight (out, in), bias (out,)."""
    out = np.matmul(x, np.swapaxes(weight, 0, 1))
    return out if bias is None else out + bias


def _infer_linear(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, weight = _matrices(specs)
    if x.ndim < 1 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"x {x.shape} does not fit weight {weight.shape}; expected (..., {weight.shape[-1]}) and (out, in)"
        )
    bias = specs[2]
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias {bias.shape} does not fit weight {weight.shape}; expected ({weight.shape[0]},)")
    return [(dtypes.promote(x.dtype, weight.dtype), (*x.shape[:-1], weight.shape[0]))]


def _linear_decomposed(x: Any, weight: Any, bias: Any) -> Any:
    out = op_matmul(reshape(x, (-1, x.shape[-1])) if x.ndim != 2 else x, permute(weight, (1, 0)))
    if bias is not None:
        out = out + bias
    return reshape(out, (*x.shape[:-1], weight.shape[0]))


def _linear_gradient(g: Any, x: Any, weight: Any, needs: tuple[bool, ...]) -> Any:
    rows = reshape(g, (-1, g.shape[-1]))
    dx = reshape(op_matmul(rows, weight), x.shape) if needs[0] else None
    dw = op_matmul(permute(rows, (1, 0)), reshape(x, (-1, x.shape[-1]))) if needs[1] else None
    return dx, dw, sum_(rows, 0) if len(needs) > 2 and needs[2] else None


def _linear_samples(rng: np.random.Generator) -> list[Sample]:
    shapes = [((3, 4), 5), ((2, 3, 4), 7), ((4,), 3), ((0, 4), 5), ((33, 65), 17)]
    return [
        Sample((rng.uniform(-1, 1, s), rng.uniform(-1, 1, (n, s[-1])), rng.uniform(-1, 1, (n,)) if bias else None))
        for s, n in shapes
        for bias in (True, False)
    ]


linear = declare(
    _linear,
    name="linear",
    family="contraction",
    infer=_infer_linear,
    decompose=_linear_decomposed,
    gradient=_linear_gradient,
    samples=_linear_samples,
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, terms=_inner),
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((4, 2))), {}, ValueError, "does not fit")],
    flops=lambda specs, outs, params: 2 * outs[0].size * specs[0].shape[-1],
    multiplies=True,
)
