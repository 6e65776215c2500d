"""Resampling along the last two axes at once: one pass over memory where a device has a kernel, else one per axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.batching import first_leading
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    declare,
    tensor_at,
)
from polyhal.hal.ops.nn.resample import (
    banded_matmul,
    banded_product,
    require_band,
    resampled,
    resampling_tables,
    resampling_taps,
)
from polyhal.hal.ops.nn.resample_tables import Method
from polyhal.hal.ops.nn.window_shape import require_floats
from polyhal.hal.ops.tensor_like import Array, TensorLike

Pair = tuple[int, int]

# --- the product with two banded matrices ---------------------------------------------------------------------------


def _banded_planes(
    x: Array, down_starts: Array, down_weights: Array, across_starts: Array, across_weights: Array
) -> Any:
    """The products of two banded matrices with `x` along its last two axes, as those of `banded_matmul`."""
    return banded_product(banded_product(x, across_starts, across_weights, axis=-1), down_starts, down_weights, axis=-2)


def _infer_banded(specs: Specs, params: Params) -> list[Output]:
    x, down_starts, down, across_starts, across = (tensor_at(specs, i) for i in range(5))
    require_floats("banded_planes", (x, down, across))
    if x.ndim < 2:
        raise ValueError(f"x {x.shape}; expected two axes or more")
    require_band(down_starts, down, x.shape[-2], "the axis")
    require_band(across_starts, across, x.shape[-1], "the axis")
    if down.dtype is not across.dtype:
        raise ValueError(f"weights of {down.dtype.name} and {across.dtype.name}; expected one dtype")
    return [(x.dtype, (*x.shape[:-2], down.shape[0], across.shape[0]))]


def _banded_decomposed(
    x: TensorLike,
    down_starts: TensorLike,
    down_weights: TensorLike,
    across_starts: TensorLike,
    across_weights: TensorLike,
) -> Any:
    height, width = x.shape[-2:]
    steps = [(down_starts, down_weights, x.ndim - 2, height), (across_starts, across_weights, x.ndim - 1, width)]
    # An axis that shrinks comes first, so that the other one has less to do.
    for starts, weights, axis, _ in sorted(steps, key=lambda step: step[1].shape[0] / step[3]):
        x = banded_matmul(x, starts, weights, axis)
    return x


def _banded_terms(specs: Specs, params: Params) -> int:
    return tensor_at(specs, 2).shape[1] * tensor_at(specs, 4).shape[1]


def _band(rng: np.random.Generator, length: int, rows: int, taps: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, length - taps + 1, rows).astype(np.int32), rng.uniform(-1, 1, (rows, taps))


def _banded_samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    for shape, (rows, down), (columns, across) in [
        ((2, 3, 5, 7), (10, 2), (16, 2)),
        ((3, 6, 33), (5, 1), (20, 4)),
        ((9, 8), (4, 7), (3, 2)),
    ]:
        bands = (*_band(rng, shape[-2], rows, down), *_band(rng, shape[-1], columns, across))
        out.append(Sample((rng.uniform(-1, 1, shape), *bands), differentiable=False))
    x, half = np.array([[1.0, np.inf], [2.0, 3.0]]), np.array([[0.5, 0.0], [0.0, 0.5]])
    starts = np.zeros(2, np.int32)
    return [*out, Sample((x, starts, half, starts, half), special=True)]


banded_planes = declare(
    _banded_planes,
    name="banded_planes",
    batching=first_leading,
    family="resampling",
    infer=_infer_banded,
    lowering=Decompose(_banded_decomposed),
    public=False,
    samples=_banded_samples,
    errors=[
        ErrorSample(
            (np.zeros((2, 3)), np.zeros(4, np.int32), np.zeros((4, 2)), np.zeros(4, np.int32), np.zeros((4, 5))),
            {},
            ValueError,
            "the axis has 3 elements",
        )
    ],
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(3.0, floor=1.0, terms=_banded_terms),
)


# --- resampling -----------------------------------------------------------------------------------------------------


def _resample_planes(x: Array, *, lengths: tuple[int, ...], methods: Any, transposed: bool = False) -> Any:
    """`x` resampled along its last two axes to `lengths`, each by its method, or the gradient of that."""
    for axis, length, method in zip((-2, -1), lengths, methods, strict=True):
        x = resampled(x, axis=axis, length=length, method=method, transposed=transposed)
    return x


def _infer_resample(specs: Specs, params: dict[str, Any]) -> list[Output]:
    require_floats("resample_planes", specs)
    x = tensor_at(specs, 0)
    lengths = params["lengths"] = tuple(params["lengths"])
    params["methods"] = tuple(Method(*m) for m in params["methods"])
    if x.ndim < 2 or 0 in x.shape[-2:] or len(lengths) != 2 or min(lengths) < 1:
        raise ValueError(f"planes of {x.shape[-2:]} to {lengths} elements; expected two lengths of at least 1")
    return [(x.dtype, (*x.shape[:-2], *lengths))]


def _resample_decomposed(x: TensorLike, *, lengths: Pair, methods: Any, transposed: bool) -> Any:
    down, across = (
        resampling_tables(x, axis, length, method, transposed)
        for axis, length, method in zip((-2, -1), lengths, methods, strict=True)
    )
    return banded_planes(x, *down, *across)


def _resample_terms(specs: Specs, params: Params) -> int:
    x, axes = tensor_at(specs, 0), zip((-2, -1), params["lengths"], params["methods"], strict=True)
    return math.prod(resampling_taps(x, axis, length, method, params["transposed"]) for axis, length, method in axes)


def _resample_samples(rng: np.random.Generator) -> list[Sample]:
    linear, cubic, nearest = Method("linear"), Method("cubic", align_corners=True), Method("nearest")
    cases: list[tuple[tuple[int, ...], Pair, tuple[Method, Method], bool]] = [
        ((2, 3, 5, 4), (10, 8), (linear, linear), False),
        ((2, 5, 6), (3, 9), (cubic, linear), True),
        ((4, 3), (8, 7), (nearest, nearest), False),
        ((8, 6), (4, 3), (nearest, nearest), True),
    ]
    return [
        Sample((rng.uniform(-1, 1, shape),), {"lengths": lengths, "methods": methods, "transposed": transposed})
        for shape, lengths, methods, transposed in cases
    ]


resample_planes: OpFunction = declare(
    _resample_planes,
    name="resample_planes",
    family="resampling",
    infer=_infer_resample,
    lowering=Decompose(_resample_decomposed, widen=False),
    gradient=lambda g, x_spec, *, methods, transposed: resample_planes(g, x_spec.shape[-2:], methods, not transposed),
    public=False,
    samples=_resample_samples,
    errors=[
        ErrorSample(
            (np.zeros((2, 0)),),
            {"lengths": (3, 3), "methods": (Method("linear"), Method("linear"))},
            ValueError,
            "expected two lengths of at least 1",
        )
    ],
    dtypes=dtypes.FLOATS,
    # The weights are rounded, too.
    tolerance=Tolerance(4.0, floor=1.0, terms=_resample_terms),
)
