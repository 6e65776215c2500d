"""Elementary functions in formulas of recurrent layers, on tensors and on NumPy arrays.

A formula takes one of the two and is therefore written once: on arrays it is the op's reference, on tensors its
decomposition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.declare import Decompose
from polyhal.hal.ops.layout.creation import arange, full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.linear_algebra.linear import fused_linear, linear
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.activation import relu, sigmoid
from polyhal.hal.ops.pointwise.logic import equal, less
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.pointwise.trigonometry import tanh
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import Array


class Arithmetic(Protocol):
    """Functions on sequences (T, B, width), steps (B, width) and weights. `x` is any of them."""

    def sigmoid(self, x: Any) -> Any:
        """Return the logistic function of `x`, without overflow."""

    def tanh(self, x: Any) -> Any:
        """Return the hyperbolic tangent of `x`."""

    def relu(self, x: Any) -> Any:
        """Return `x` where it is positive and 0 elsewhere."""

    def is_positive(self, x: Any) -> Any:
        """Return 1 where `x` is positive and 0 elsewhere, in the dtype of `x`."""

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """Return `x` where `condition` holds and `y` elsewhere."""

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        """Return `x @ weight.T + bias`."""

    def linear_plus(self, x: Any, weight: Any, addend: Any) -> Any:
        """Return `x @ weight.T + addend`."""

    def product(self, x: Any, weight: Any) -> Any:
        """Return `x @ weight`."""

    def outer(self, x: Any, y: Any) -> Any:
        """Return the sum over steps and sequences of the outer products of rows of `x` and `y`."""

    def total(self, x: Any) -> Any:
        """Return the sum of a sequence over steps and sequences."""

    def zeros(self, shape: tuple[int, ...], like: Any) -> Any:
        """Return zeros of the dtype of `like`."""

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        """Return the elements of `x` in another shape."""

    def joined(self, parts: list[Any]) -> Any:
        """Concatenate along the last axis."""

    def parts(self, x: Any, count: int) -> list[Any]:
        """Return `count` equal parts along the last axis, as views."""

    def step(self, x: Any, t: int) -> Any:
        """Return `x[t]`, a view."""

    def stacked(self, steps: dict[int, Any]) -> Any:
        """Return the results of all time steps as one sequence, in the order of time."""

    def states_before(self, first: Any, states: Any, reverse: bool) -> Any:
        """Return the states before each step: `first` (B, H), then `states` (T, B, H) without the last computed one."""

    def in_use(self, lengths: Any, length: int) -> Any:
        """Return the mask of the steps within each sequence, bool (T, B, 1); None without `lengths`."""

    def is_last(self, count: int) -> Any:
        """Return the mask of the last of `count` gates, bool (1, count, 1)."""


class _Arrays:
    """NumPy arrays."""

    tanh = staticmethod(np.tanh)
    where = staticmethod(np.where)
    product = staticmethod(np.matmul)

    def sigmoid(self, x: Array) -> Any:
        return 0.5 + 0.5 * np.tanh(0.5 * np.asarray(x))

    def relu(self, x: Array) -> Any:
        return np.maximum(x, 0)

    def is_positive(self, x: Array) -> Any:
        return (x > 0).astype(x.dtype)

    def linear(self, x: Array, weight: Array, bias: Any = None) -> Any:
        return x @ weight.T + (0 if bias is None else bias)

    def linear_plus(self, x: Array, weight: Array, addend: Array) -> Any:
        return x @ weight.T + addend

    def outer(self, x: Array, y: Array) -> Any:
        return np.tensordot(x, y, ((0, 1), (0, 1)))

    def total(self, x: Array) -> Any:
        return np.sum(x, axis=(0, 1))

    def zeros(self, shape: tuple[int, ...], like: Array) -> Any:
        return np.zeros(shape, like.dtype)

    def reshape(self, x: Array, shape: tuple[int, ...]) -> Any:
        return np.reshape(x, shape)

    def joined(self, parts: list[Array]) -> Any:
        return np.concatenate(parts, -1)

    def parts(self, x: Array, count: int) -> list[Any]:
        return np.split(np.asarray(x), count, -1)

    def step(self, x: Array, t: int) -> Any:
        return x[t]

    def stacked(self, steps: dict[int, Any]) -> Any:
        return np.stack([steps[t] for t in sorted(steps)])

    def states_before(self, first: Array, states: Array, reverse: bool) -> Any:
        return np.concatenate([states[1:], first[None]] if reverse else [first[None], states[:-1]])

    def in_use(self, lengths: Any, length: int) -> Any:
        return None if lengths is None else (np.arange(length)[:, None] < np.asarray(lengths))[:, :, None]

    def is_last(self, count: int) -> Any:
        return (np.arange(count) == count - 1)[None, :, None]


class _Tensors:
    """Tensors, through ops."""

    sigmoid, tanh, relu, where, linear = (staticmethod(f) for f in (sigmoid, tanh, relu, where, linear))
    product, reshape, total = staticmethod(op_matmul), staticmethod(reshape), staticmethod(lambda x: sum_(_rows(x), 0))

    def is_positive(self, x: Any) -> Any:
        return where(less(0.0, x), 1.0, 0.0).cast(dtype=x.dtype)

    def linear_plus(self, x: Any, weight: Any, addend: Any) -> Any:
        return fused_linear(x, weight, None, addend)

    def outer(self, x: Any, y: Any) -> Any:
        return op_matmul(permute(_rows(x), (1, 0)), _rows(y))

    def zeros(self, shape: tuple[int, ...], like: Any) -> Any:
        return full(shape, 0.0, like.dtype)

    def joined(self, parts: list[Any]) -> Any:
        return concat(parts, -1)

    def parts(self, x: Any, count: int) -> list[Any]:
        lead, width = x.shape[:-1], x.shape[-1] // count
        return [slice_(x, (*(0,) * len(lead), i * width), (*lead, width), (1,) * x.ndim) for i in range(count)]

    def step(self, x: Any, t: int) -> Any:
        rest = x.shape[1:]
        return reshape(slice_(x, (t, *(0,) * len(rest)), (1, *rest), (1,) * x.ndim), rest)

    def stacked(self, steps: dict[int, Any]) -> Any:
        return concat([reshape(steps[t], (1, *steps[t].shape)) for t in sorted(steps)], 0)

    def states_before(self, first: Any, states: Any, reverse: bool) -> Any:
        length, *rest = states.shape
        start = reshape(first, (1, *rest))
        if length == 1:
            return start
        others = slice_(states, (int(reverse), 0, 0), (length - 1, *rest), (1, 1, 1))
        return concat([others, start] if reverse else [start, others], 0)

    def in_use(self, lengths: Any, length: int) -> Any:
        if lengths is None:
            return None
        times = reshape(arange(0, length, 1, lengths.dtype), (length, 1, 1))
        return less(times, reshape(lengths, (1, lengths.shape[0], 1)))

    def is_last(self, count: int) -> Any:
        return equal(reshape(arange(0, count, 1, dtypes.int32), (1, count, 1)), count - 1)


def _rows(x: Any) -> Any:
    """Return (T, B, width) as (T * B, width)."""
    return reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))


ARRAYS: Arithmetic = _Arrays()
TENSORS: Arithmetic = _Tensors()


def on_arrays(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Return the reference of an op: its formula on arrays."""
    reference = functools.partial(formula, ARRAYS)
    reference.__doc__ = formula.__doc__
    return reference


def on_tensors(formula: Callable[..., Any]) -> Decompose:
    """Return the lowering of an op to the ops of its formula."""
    return Decompose(functools.partial(formula, TENSORS))
