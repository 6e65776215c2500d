"""Resampling along one axis: interpolation by every method, and means over an even division, as a banded matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.layout import Spec, normalize_axis
from polyhal.hal.ops.batching import first_along_axis
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    HostConstant,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    Trait,
    declare,
    tensor_at,
)
from polyhal.hal.ops.indexing.rows import slices_at
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.nn.resample_tables import Band, Method, resampling_band
from polyhal.hal.ops.nn.window_shape import require_floats
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _band(params: Params) -> Band:
    return resampling_band(Method(*params["method"]), params["length"], params["result"], params["transposed"])


def _resample_starts(*, method: Any, length: int, result: int, transposed: bool) -> Any:
    """The first element that each result of a resampling reads."""
    return resampling_band(Method(*method), length, result, transposed).starts


def _resample_weights(*, method: Any, length: int, result: int, transposed: bool, dtype: Any) -> Any:
    """The weights (results, taps) of the elements that each result of a resampling reads."""
    return resampling_band(Method(*method), length, result, transposed).weights.astype(as_dtype(dtype).numpy)


_LINEAR = {"method": Method("linear"), "length": 5, "result": 8, "transposed": True}

resample_starts = declare(
    _resample_starts,
    name="resample_starts",
    family="creation",
    infer=lambda specs, params: [(dtypes.int32, _band(params).starts.shape)],
    lowering=HostConstant(lambda params: _band(params).starts),
    traits=Trait.CREATION,
    public=False,
    samples=lambda rng: [Sample((), _LINEAR)],
    tolerance=Tolerance(0.0),
)
resample_weights = declare(
    _resample_weights,
    name="resample_weights",
    family="creation",
    infer=lambda specs, params: [(as_dtype(params["dtype"]), _band(params).weights.shape)],
    lowering=HostConstant(lambda params: _band(params).weights.astype(as_dtype(params["dtype"]).numpy)),
    traits=Trait.CREATION,
    public=False,
    samples=lambda rng: [Sample((), {**_LINEAR, "dtype": dtypes.float32})],
    tolerance=Tolerance(1.0),
)


# --- the product with a banded matrix -------------------------------------------------------------------------------


def banded_product(x: Array, starts: Array, weights: Array, *, axis: int) -> Any:
    """The product of a banded matrix with `x` along `axis`: row r is `weights[r]` with first column `starts[r]`.

    A weight of zero reads nothing: zero times infinity adds zero.
    """
    x, weights = np.asarray(x), np.asarray(weights)
    matrix = np.zeros((len(weights), x.shape[axis]), weights.dtype)
    np.put_along_axis(matrix, np.asarray(starts)[:, None] + np.arange(weights.shape[1]), weights, 1)
    front = np.moveaxis(x, axis, -1)[..., None, :]
    with np.errstate(invalid="ignore"):
        terms = np.where(matrix != 0, front * matrix, np.zeros((), np.result_type(x, weights)))
    return np.moveaxis(terms.sum(-1), -1, axis).astype(x.dtype)


def require_band(starts: Spec, weights: Spec, length: int, axis: str) -> None:
    """Raise ValueError unless these are a banded matrix for an axis of `length` elements, which the error calls `axis`."""
    if starts.dtype is not dtypes.int32 or weights.ndim != 2 or starts.shape != weights.shape[:1]:
        raise ValueError(f"starts {starts} and weights {weights}; expected int32 (rows,) and floats (rows, taps)")
    if weights.shape[1] > length:
        raise ValueError(f"{weights.shape[1]} taps; {axis} has {length} elements")


def _infer_banded(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x, starts, weights = (tensor_at(specs, i) for i in range(3))
    require_floats("banded_matmul", (x, weights))
    axis = params["axis"] = normalize_axis(params["axis"], x.ndim)
    require_band(starts, weights, x.shape[axis], f"axis {axis}")
    return [(x.dtype, (*x.shape[:axis], weights.shape[0], *x.shape[axis + 1 :]))]


def _banded_decomposed(x: TensorLike, starts: TensorLike, weights: TensorLike, *, axis: int) -> Any:
    rows, taps = weights.shape
    total = None
    for tap in range(taps):
        factor = reshape(slice_(weights, (0, tap), (rows, 1), (1, 1)), (rows, *[1] * (x.ndim - 1 - axis)))
        factor = factor if factor.dtype is x.dtype else factor.cast(dtype=x.dtype)
        term = where(equal(factor, 0.0), 0.0, slices_at(x, starts + tap, axis) * factor)
        total = term if total is None else total + term
    return total


def _taps(specs: Specs, params: Params) -> int:
    return tensor_at(specs, 2).shape[1]


def _banded_samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], int, int, int]] = [((2, 5, 3), 1, 7, 2), ((6, 33), -1, 20, 4), ((7,), 0, 3, 7)]
    out = []
    for shape, axis, rows, taps in cases:
        starts = rng.integers(0, shape[axis] - taps + 1, rows).astype(np.int32)
        sample = (rng.uniform(-1, 1, shape), starts, rng.uniform(-1, 1, (rows, taps)))
        out.append(Sample(sample, {"axis": axis}, differentiable=False))
    x, weights = np.array([1.0, np.inf, 2.0]), np.array([[0.5, 0.0], [0.0, 0.5]])
    return [*out, Sample((x, np.array([0, 1], np.int32), weights), {"axis": 0}, special=True)]


banded_matmul = declare(
    banded_product,
    name="banded_matmul",
    batching=first_along_axis,
    family="resampling",
    infer=_infer_banded,
    lowering=Decompose(_banded_decomposed),
    public=False,
    samples=_banded_samples,
    errors=[
        ErrorSample(
            (np.zeros((2, 3)), np.zeros(4, np.int32), np.zeros((4, 5))),
            {"axis": 1},
            ValueError,
            "axis 1 has 3 elements",
        )
    ],
    dtypes=dtypes.FLOATS,
    tolerance=Tolerance(2.0, floor=1.0, terms=_taps),
)


# --- resampling -----------------------------------------------------------------------------------------------------


def _ends(length: int, result: int, transposed: bool) -> tuple[int, int]:
    """The lengths before and after the resampling that this is, or that this is the gradient of."""
    return (result, length) if transposed else (length, result)


def resampling_tables(x: TensorLike, axis: int, length: int, method: Any, transposed: bool) -> tuple[Any, Any]:
    """The banded matrix that resamples `axis` of `x` to `length` elements: its starts and weights, as tensors."""
    ends = _ends(x.shape[axis], length, transposed)
    dtype = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    return resample_starts(method, *ends, transposed), resample_weights(method, *ends, transposed, dtype)


def resampling_taps(x: Spec, axis: int, length: int, method: Any, transposed: bool) -> int:
    """Elements of `x` that a result of this resampling reads, at most."""
    ends = _ends(x.shape[axis], length, transposed)
    return int(resampling_band(Method(*method), *ends, transposed).weights.shape[1])


def resampled(x: Array, *, axis: int, length: int, method: Any, transposed: bool = False) -> Any:
    """`x` resampled along `axis` to `length` elements by a method, or the gradient of that."""
    x = np.asarray(x)
    band = resampling_band(Method(*method), *_ends(x.shape[axis], length, transposed), transposed)
    return banded_product(x, band.starts, band.weights, axis=axis)


def _infer_resample(specs: Specs, params: dict[str, Any]) -> list[Output]:
    require_floats("resample", specs)
    x = tensor_at(specs, 0)
    axis = params["axis"] = normalize_axis(params["axis"], x.ndim)
    params["method"] = Method(*params["method"])
    if not x.shape[axis] or params["length"] < 1:
        raise ValueError(f"axis {axis} of length {x.shape[axis]} to {params['length']} elements; expected at least 1")
    return [(x.dtype, (*x.shape[:axis], params["length"], *x.shape[axis + 1 :]))]


def _resample_decomposed(x: TensorLike, *, axis: int, length: int, method: Any, transposed: bool) -> Any:
    return banded_matmul(x, *resampling_tables(x, axis, length, method, transposed), axis)


def _resample_taps(specs: Specs, params: Params) -> int:
    return resampling_taps(
        tensor_at(specs, 0), params["axis"], params["length"], params["method"], params["transposed"]
    )


def _resample_samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], int, int, Method, bool]] = [
        ((2, 5, 3), 1, 8, Method("linear"), False),
        ((2, 7), -1, 4, Method("cubic", align_corners=True), False),
        ((9, 2), 0, 4, Method("linear", antialias=True), True),
        ((3, 7), 1, 3, Method("mean"), False),
    ]
    return [
        Sample((rng.uniform(-1, 1, shape),), {"axis": axis, "length": n, "method": method, "transposed": transposed})
        for shape, axis, n, method, transposed in cases
    ]


resample: OpFunction = declare(
    resampled,
    name="resample",
    family="resampling",
    infer=_infer_resample,
    lowering=Decompose(_resample_decomposed, widen=False),
    gradient=lambda g, x_spec, *, axis, method, transposed: resample(
        g, axis, x_spec.shape[axis], method, not transposed
    ),
    public=False,
    samples=_resample_samples,
    errors=[
        ErrorSample(
            (np.zeros((2, 0)),), {"axis": 1, "length": 3, "method": Method("linear")}, ValueError, "expected at least 1"
        )
    ],
    dtypes=dtypes.FLOATS,
    # The weights are rounded, too.
    tolerance=Tolerance(3.0, floor=1.0, terms=_resample_taps),
)
