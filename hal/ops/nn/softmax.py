"""Softmax and log-softmax along one axis, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, normalize_axis
from polyhal.hal.ops.along_axis import declare_along_axis
from polyhal.hal.ops.declare import (
    Autocast,
    ErrorSample,
    Names,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
    first_tensor,
)
from polyhal.hal.ops.fusion import Pattern
from polyhal.hal.ops.pointwise.exponential import exp, log
from polyhal.hal.ops.reductions.extrema import max_
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    if not spec.dtype.is_floating_point:
        raise TypeError(f"got {spec.dtype.name}; expected a floating-point tensor")
    params["axis"] = normalize_axis(params["axis"], spec.ndim)
    return [(spec.dtype, spec.shape)]


def _length(specs: Specs, params: Params) -> int:
    spec = first_tensor(specs)
    return spec.shape[params["axis"]] if spec.ndim else 1


_SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((7,), 0),
    ((3, 5), -1),
    ((3, 5), 0),
    ((2, 3, 4), 1),
    ((4, 300), 1),
    ((2, 0), 0),
    ((1, 1), 1),
]
_ERRORS = [ErrorSample((np.zeros((2, 3)),), {"axis": 2}, ValueError, "axis 2 is out of range")]


def _samples(count: int) -> Callable[[np.random.Generator], list[Sample]]:
    def samples(rng: np.random.Generator) -> list[Sample]:
        out = []
        for shape, axis in _SHAPES:
            x = rng.uniform(-4, 4, shape)
            if count == 1:
                out.append(Sample((x,), {"axis": axis}))
                out.append(Sample((x * 20,), {"axis": axis}, note="large logits"))
            else:
                probabilities = np.exp(x) / np.exp(x).sum(axis, keepdims=True)
                out.append(Sample((rng.uniform(-1, 1, shape), probabilities), {"axis": axis}))
        if count == 1:
            rows = np.array([[0.0, -np.inf, 1.0], [np.nan, 0.0, 0.0], [1.0, 2.0, 3.0]])
            out.append(Sample((rows,), {"axis": 1}, special=True, note="masked and NaN entries"))
            falling = -np.linspace(0, 1e4, 40_000).reshape(1, -1)
            out.append(Sample((falling,), {"axis": 1}, differentiable=False, note="a long row of large logits"))
            out += [_long_special_rows(length) for length in (6000, 40_000)]
        else:
            x = rng.uniform(-4, 4, (2, 5000))
            probabilities = np.exp(x) / np.exp(x).sum(1, keepdims=True)
            inputs = rng.uniform(-1, 1, x.shape), probabilities
            out.append(Sample(inputs, {"axis": 1}, differentiable=False, note="long rows"))
        return out

    return samples


def _long_special_rows(length: int) -> Sample:
    x = np.zeros((5, length))
    x[0, :-3], x[1, 5], x[2, 0], x[3] = -np.inf, np.nan, np.inf, -np.inf
    return Sample((x,), {"axis": 1}, special=True, note="long rows with masked, NaN and infinite entries")


def _softmax(x: Array, *, axis: int = -1) -> Any:
    """`exp(x)` divided by its sum along `axis`, without overflow."""
    e = np.exp(x - np.max(x, axis=axis, keepdims=True)) if np.size(x) else np.asarray(x)
    return e / np.sum(e, axis=axis, keepdims=True)


def _softmax_decomposed(x: TensorLike, *, axis: int) -> Any:
    e = exp(x - max_(x, axis, True))
    return e / sum_(e, axis, True)


def _calls(x: Spec) -> list[tuple[Specs, Params]]:
    """Along every axis."""
    return [((x,), {"axis": axis}) for axis in range(x.ndim)]


def _softmax_grad(grad: Array, y: Array, *, axis: int = -1) -> Any:
    """Gradient of softmax from its result."""
    return y * (grad - np.sum(grad * y, axis=axis, keepdims=True))


softmax_grad = declare_along_axis(
    _softmax_grad,
    name="softmax_grad",
    family="norm",
    infer=_infer,
    dtypes=dtypes.FLOATS,
    samples=_samples(2),
    errors=[],
    decompose=lambda g, out, *, axis: out * (g - sum_(g * out, axis, True)),
    tolerance=Tolerance(8.0, floor=1.0, terms=_length),
)
softmax = declare_along_axis(
    _softmax,
    name="softmax",
    family="norm",
    infer=_infer,
    dtypes=dtypes.FLOATS,
    samples=_samples(1),
    errors=_ERRORS,
    decompose=_softmax_decomposed,
    gradient=lambda g, out, *, axis: softmax_grad(g, out, axis),
    fuses=Pattern(_calls),
    # exp turns the rounding of x - max, at most 160 on the samples, into a relative error of as many units.
    tolerance=Tolerance(8.0, floor=1.0, terms=_length),
    casts=True,
    autocast=Autocast.FLOAT32,
    names=Names("special."),
)


def _log_softmax(x: Array, *, axis: int = -1) -> Any:
    """Logarithm of softmax, accurate where the probability is tiny."""
    if not np.size(x):
        return np.asarray(x)
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _log_softmax_decomposed(x: TensorLike, *, axis: int) -> Any:
    shifted = x - max_(x, axis, True)
    return shifted - log(sum_(exp(shifted), axis, True))


def _log_softmax_grad(grad: Array, y: Array, *, axis: int = -1) -> Any:
    """Gradient of log_softmax from its result."""
    return grad - np.exp(y) * np.sum(grad, axis=axis, keepdims=True)


log_softmax_grad = declare_along_axis(
    _log_softmax_grad,
    name="log_softmax_grad",
    family="norm",
    infer=_infer,
    dtypes=dtypes.FLOATS,
    samples=lambda rng: [Sample((s.inputs[0], np.log(s.inputs[1])), s.params) for s in _samples(2)(rng)],
    decompose=lambda g, out, *, axis: g - exp(out) * sum_(g, axis, True),
    tolerance=Tolerance(8.0, floor=1.0, terms=_length),
)
log_softmax = declare_along_axis(
    _log_softmax,
    name="log_softmax",
    family="norm",
    infer=_infer,
    dtypes=dtypes.FLOATS,
    samples=_samples(1),
    errors=_ERRORS,
    decompose=_log_softmax_decomposed,
    gradient=lambda g, out, *, axis: log_softmax_grad(g, out, axis),
    fuses=Pattern(_calls),
    tolerance=Tolerance(8.0, floor=4.0, terms=_length),
    casts=True,
    autocast=Autocast.FLOAT32,
    names=Names("special."),
)
