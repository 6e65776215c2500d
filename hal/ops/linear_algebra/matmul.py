"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.layout import Spec, View, broadcast_shapes, broadcast_strides
from polyhal.hal.ops import batching
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.declare import (
    Autocast,
    CoreCall,
    CoreInput,
    CoreMember,
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
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.returns import own
from polyhal.hal.ops.tensor_like import Array, TensorLike
from polyhal.hal.protocol import ComputeBackend


def factors(specs: Specs) -> tuple[Spec, Spec]:
    """The factors of a product. Raises TypeError if one is no tensor."""
    return tensor_at(specs, 0), tensor_at(specs, 1)


def as_rows(x: Any) -> Any:
    """`x` with all axes but the last merged into one, which may be empty."""
    return x if x.ndim == 2 else reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _matmul(x: Array, y: Array, *, out_dtype: Any = None) -> Any:
    """Matrix product of the last two axes, broadcast over the others: (..., M, K) @ (..., K, N)."""
    if out_dtype is None:
        return np.matmul(x, y)
    target = dtypes.as_dtype(out_dtype)
    wide = np.dtype(np.float64) if target.is_floating_point else target.numpy
    return np.matmul(np.asarray(x).astype(wide), np.asarray(y).astype(wide))


def _infer_matmul(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, y = factors(specs)
    if x.ndim < 2 or y.ndim < 2:
        raise ValueError(f"shapes {x.shape} and {y.shape}; expected at least 2 axes each")
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"inner lengths differ: {x.shape} @ {y.shape} multiplies {x.shape[-1]} by {y.shape[-2]}")
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    dtype = dtypes.promote(x.dtype, y.dtype)
    if dtype is dtypes.bool_:
        problem = message(
            "matmul", "got bool_", expected="numbers, whose products are summed", fix="cast with .to(dtype)"
        )
        raise UnsupportedDTypeError(problem)
    return [(sum_dtype(dtype, params), (*batch, x.shape[-2], y.shape[-1]))]


def sum_dtype(dtype: DType, params: dict[str, Any]) -> DType:
    """The dtype of sums of a dtype: `out_dtype`, if given. Raises ValueError if that is narrower."""
    if params["out_dtype"] is None:
        return dtype
    target: DType = dtypes.as_dtype(params["out_dtype"])
    params["out_dtype"] = target
    if dtypes.promote(dtype, target) is not target:
        raise ValueError(f"{target.name} cannot hold sums of {dtype.name}; expected a dtype to which that widens")
    return target


def _matmul_core(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    (x, y), (out,) = factors(specs), outputs
    batch, (m, k), n = out.shape[:-2], x.shape[-2:], y.shape[-1]
    count = int(np.prod(batch, dtype=int))

    def batched(s: Spec) -> View:
        shape = (*batch, *s.shape[-2:])
        return View(shape, broadcast_strides(s.shape, s.strides, shape))

    inputs = (CoreInput(out.dtype, (count, m, k), batched(x)), CoreInput(out.dtype, (count, k, n), batched(y)))
    return CoreCall("matmul", backend.matmul, inputs, out.dtype, (count, m, n))


def _gradient_of_left(g: TensorLike, y: TensorLike, x_spec: Spec) -> Any:
    return _narrowed(op_matmul(g, transpose(y)), x_spec)


def _gradient_of_right(g: TensorLike, x: TensorLike, y_spec: Spec) -> Any:
    if len(y_spec.shape) == 2 and x.ndim > 2:
        # One large product is faster than a sum over a batch of small ones.
        x, g = as_rows(x), as_rows(g)
    return _narrowed(op_matmul(transpose(x), g), y_spec)


def _narrowed(gradient: TensorLike, operand: Spec) -> Any:
    return gradient if gradient.dtype is operand.dtype else cast(gradient, dtype=operand.dtype)


def inner_length(specs: Specs, params: Params) -> int:
    """The number of terms of each sum of a product."""
    return tensor_at(specs, 0).shape[-1]


def _matmul_samples(rng: np.random.Generator) -> list[Sample]:
    shapes = [
        ((3, 4), (4, 5)),
        ((1, 1), (1, 1)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (3, 4, 2)),
        ((0, 4), (4, 5)),
        ((2, 3, 0), (0, 5)),
        ((33, 65), (65, 17)),
        ((70, 40), (40, 130)),
    ]
    plain = [Sample((rng.uniform(-1, 1, a), rng.uniform(-1, 1, b))) for a, b in shapes]
    for m, k, n in ((2, 5000, 2), (48, 3000, 40), (1, 600, 70)):
        operands = rng.uniform(-1, 1, (m, k)), rng.uniform(-1, 1, (k, n))
        plain.append(Sample(operands, differentiable=False, note="few results of many terms"))
    x, y = rng.uniform(-1, 1, (40, 45)), rng.uniform(-1, 1, (45, 70))
    x[3, 7], y[11, 20] = np.nan, np.inf
    plain.append(Sample((x, y), special=True, note="NaN and infinity reach only sums with them"))
    return [*plain, *(_wide_sample(rng, *case) for case in _WIDE_CASES)]


_WIDE_CASES: tuple[tuple[DType, DType, int, int, int], ...] = (
    (dtypes.int8, dtypes.int32, 3, 4, 5),
    (dtypes.int8, dtypes.int32, 70, 300, 40),
    (dtypes.uint8, dtypes.int32, 1, 300, 40),
    (dtypes.float16, dtypes.float32, 70, 300, 40),
    (dtypes.bfloat16, dtypes.float32, 1, 300, 40),
)
"""Operands, result, M, K and N of products with a result wider than the operands."""


def _wide_sample(rng: np.random.Generator, dtype: DType, out: DType, m: int, k: int, n: int) -> Sample:
    def draw(*shape: int) -> np.ndarray:
        if dtype.is_floating_point:
            return rng.uniform(-1, 1, shape).astype(dtype.numpy)
        limits = np.iinfo(dtype.numpy)
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype.numpy)

    return Sample((draw(m, k), draw(k, n)), {"out_dtype": out}, differentiable=False)


op_matmul = declare(
    _matmul,
    name="matmul",
    family="contraction",
    infer=_infer_matmul,
    lowering=CoreMember(_matmul_core),
    batching=batching.pointwise,
    gradient=(_gradient_of_left, _gradient_of_right),
    samples=_matmul_samples,
    dtypes=(*dtypes.FLOATS, dtypes.int32, dtypes.int64),
    tolerance=Tolerance(1.0, terms=inner_length),
    errors=[
        ErrorSample((np.zeros((2, 3)), np.zeros((4, 2))), {}, ValueError, "inner lengths differ"),
        ErrorSample((np.zeros((2, 3)), np.zeros((3, 2))), {"out_dtype": dtypes.int32}, ValueError, "cannot hold"),
        ErrorSample((np.ones((2, 3), bool), np.ones((3, 2), bool)), {}, TypeError, "expected numbers"),
    ],
    flops=lambda specs, outs, params: 2 * outs[0].size * tensor_at(specs, 0).shape[-1],
    settings=("precision",),
    autocast=Autocast.HALF,
)


@composite("linalg.", aten="mm bmm dot mv")
def matmul(x: TensorLike, y: TensorLike, *, out_dtype: Any = None) -> Any:
    """Matrix product as NumPy's: 1-D inputs are vectors, further axes broadcast: (..., M, K) @ (..., K, N).

    Sums have the dtype of the result. `out_dtype` makes it wider than that of the operands, such as int32 for int8.
    Raises ValueError for a tensor without axes.

    >>> polyhal.matmul(polyhal.tensor([[1, 2], [3, 4]]), polyhal.tensor([1, 1])).tolist()
    [3, 7]
    """
    nx, ny = getattr(x, "ndim", 2), getattr(y, "ndim", 2)
    if nx >= 2 and ny >= 2:
        return op_matmul(x, y, out_dtype)
    if not nx or not ny:
        raise ValueError(f"[matmul] shapes {x.shape} and {y.shape}; expected at least one axis each; use * for scaling")
    rows = reshape(x, (1, -1)) if nx == 1 else x
    columns = reshape(y, (-1, 1)) if ny == 1 else y
    out = op_matmul(rows, columns, out_dtype)
    if nx == 1:
        out = reshape(out, (*out.shape[:-2], out.shape[-1]))
    return own(reshape(out, out.shape[:-1]) if ny == 1 else out)
