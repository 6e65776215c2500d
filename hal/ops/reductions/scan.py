"""Running sums and products along one axis, in at least float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.along_axis import declare_along_axis
from polyhal.hal.ops.declare import (
    Autocast,
    ErrorSample,
    Names,
    OpFunction,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    first_tensor,
)
from polyhal.hal.ops.layout.axes import flip
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.pointwise.arithmetic import add, multiply
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    params["axis"] = normalize_axis(params["axis"], spec.ndim)
    wide = dtypes.uint64 if spec.dtype.kind == "uint" else dtypes.int64
    return [(spec.dtype if spec.dtype.is_floating_point else wide, spec.shape)]


def scan_terms(specs: Specs, params: Params) -> int:
    """The number of terms of the last result."""
    spec = first_tensor(specs)
    return spec.shape[params["axis"]]


def _samples(low: float, high: float) -> Callable[[np.random.Generator], list[Sample]]:
    def samples(rng: np.random.Generator) -> list[Sample]:
        cases = [
            ((7,), 0),
            ((3, 5), 0),
            ((3, 5), -1),
            ((2, 3, 4), 1),
            ((4, 300), 1),
            ((300, 4), 0),
            ((1,), 0),
            ((3, 0), 1),
        ]
        plain = [Sample((rng.uniform(low, high, shape),), {"axis": axis}) for shape, axis in cases]
        for shape, axis in (((20_003,), 0), ((2, 50, 33), 1)):
            x = rng.uniform(low, high, shape)
            plain.append(Sample((x,), {"axis": axis}, differentiable=False, note="several blocks"))
        special = rng.uniform(0.5, 1, (300, 17))
        special[1, 1], special[150, 4], special[200, 1], special[7, 9] = np.inf, -np.inf, -np.inf, np.nan
        return [*plain, Sample((special,), {"axis": 0}, special=True, note="infinities stay in running sums")]

    return samples


def slice_along(x: TensorLike, axis: int, start: int, length: int) -> Any:
    """`length` consecutive elements along `axis`."""
    starts = tuple(start if i == axis else 0 for i in range(x.ndim))
    lengths = tuple(length if i == axis else n for i, n in enumerate(x.shape))
    return slice_(x, starts, lengths, (1,) * x.ndim)


def prefix_scan(combine: Callable[..., Any]) -> Callable[..., Any]:
    """A parallel prefix scan (Hillis and Steele, 1986): round i combines elements at a distance of 2^i."""

    def decompose(x: Any, *, axis: int) -> Any:
        length, distance = x.shape[axis], 1
        while distance < length:
            rest = length - distance
            combined = combine(slice_along(x, axis, distance, rest), slice_along(x, axis, 0, rest))
            x = concat((slice_along(x, axis, 0, distance), combined), axis)
            distance *= 2
        return x

    return decompose


def _in_64_bits(scan: Callable[..., Any]) -> Callable[..., Any]:
    """A scan of integers and bool in 64 bits."""

    def decompose(x: Any, *, axis: int) -> Any:
        if x.dtype.kind != "float":
            x = x.cast(dtype=dtypes.uint64 if x.dtype.kind == "uint" else dtypes.int64)
        return scan(x, axis=axis)

    return decompose


_ERRORS = [ErrorSample((np.zeros((2, 3)),), {"axis": 2}, ValueError, "axis 2 is out of range")]


def scanned_in(x: Array) -> Any:
    """Return float64 for an array of float32, because NumPy adds one element after the other; None for others."""
    return np.float64 if np.asarray(x).dtype == np.float32 else None


def _cumsum(x: Array, *, axis: int) -> Any:
    """Sum of the elements up to and including each along `axis`. Integers and bool sum in 64 bits."""
    return np.cumsum(x, axis=axis, dtype=scanned_in(x))


cumsum: OpFunction = declare_along_axis(
    _cumsum,
    name="cumsum",
    family="scan",
    infer=_infer,
    decompose=_in_64_bits(prefix_scan(add)),
    gradient=lambda g, *, axis: flip(cumsum(flip(g, axis), axis), axis),
    samples=_samples(-2.0, 2.0),
    errors=_ERRORS,
    dtypes=dtypes.ALL,
    # Partial sums cancel: the rounding is that of the largest of them.
    tolerance=Tolerance(2.0, floor=4.0, terms=scan_terms),
    casts=True,
    autocast=Autocast.FLOAT32,
    names=Names(in_place=True),
)


def _cumprod(x: Array, *, axis: int) -> Any:
    """Product of the elements up to and including each along `axis`. Integers and bool multiply in 64 bits."""
    return np.cumprod(x, axis=axis, dtype=scanned_in(x))


cumprod: OpFunction = declare_along_axis(
    _cumprod,
    name="cumprod",
    family="scan",
    infer=_infer,
    decompose=_in_64_bits(prefix_scan(multiply)),
    samples=_samples(0.8, 1.25),
    errors=_ERRORS,
    dtypes=(*dtypes.FLOATS, *dtypes.INTEGERS),
    tolerance=Tolerance(2.0, terms=scan_terms),
    casts=True,
    autocast=Autocast.FLOAT32,
    names=Names(in_place=True),
)
