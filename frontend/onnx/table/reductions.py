"""Reductions, arg-reductions and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polyhal as ph
from polyhal.onnx.registration import NodeFacts, Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.tensor import Tensor


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    return ph.sum(x, axes, keepdims=keep, dtype=x.dtype)


def _prod(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    for axis in sorted((a % x.ndim for a in axes), reverse=True):
        x = ph.prod(x, axis, keepdims=keep, dtype=x.dtype)
    return x


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    if x.dtype.is_floating_point:
        return ph.mean(x, axes, keepdims=keep)
    return ph.mean(x.to(ph.float32), axes, keepdims=keep).to(x.dtype)


def _extremum(x: Tensor, axes: tuple[int, ...], keep: bool, *, largest: bool) -> Any:
    if x.dtype is ph.bool_:
        return (ph.any if largest else ph.all)(x, axes, keepdims=keep)
    if any(x.shape[a] == 0 for a in axes):
        lowest = _bounds(x)[0 if largest else 1]
        return ph.full(_reduced(x.shape, axes, keep), lowest, dtype=x.dtype, device=x.device)
    return (ph.amax if largest else ph.amin)(x, axes, keep)


def _bounds(x: Tensor) -> tuple[float, float]:
    if x.dtype.is_floating_point:
        return float("-inf"), float("inf")
    info = ph.iinfo(x.dtype)
    return info.min, info.max


def _reduced(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    chosen = {a % len(shape) for a in axes}
    return tuple(1 if i in chosen else n for i, n in enumerate(shape) if keep or i not in chosen)


def _max(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    return _extremum(x, axes, keep, largest=True)


def _min(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    return _extremum(x, axes, keep, largest=False)


def _l1(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    return _sum(ph.abs(x), axes, keep)


def _l2(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    return ph.sqrt(_sum(ph.square(x if x.dtype.is_floating_point else x.to(ph.float32)), axes, keep))


def _log_sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    return ph.log(_sum(x, axes, keep))


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    if any(x.shape[a] == 0 for a in axes):
        return ph.full(_reduced(x.shape, axes, keep), float("-inf"), dtype=x.dtype, device=x.device)
    return ph.logsumexp(x, axes, keepdims=keep)


def _sum_square(x: Tensor, axes: tuple[int, ...], keep: bool) -> Any:
    return _sum(ph.square(x), axes, keep)


_REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...], bool], Any]] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _max,
    "ReduceMean": _mean,
    "ReduceMin": _min,
    "ReduceProd": _prod,
    "ReduceSum": _sum,
    "ReduceSumSquare": _sum_square,
}


@operator(*_REDUCTIONS, host=("axes",))
def reduce_(x: Tensor, axes: Value = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0, node: NodeFacts) -> Any:
    chosen = () if axes is None else integers(axes)
    if not chosen:
        if noop_with_empty_axes:
            return _REDUCTIONS[node.op](ph.unsqueeze(x, 0), (0,), False) if node.op in _ELEMENTWISE else x
        chosen = tuple(range(x.ndim))
    return _REDUCTIONS[node.op](x, chosen, bool(keepdims)) if chosen else _of_number(x, node.op)


_ELEMENTWISE = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
"""Reductions that change each element, so that one over no axis is a function of the elements."""


def _of_number(x: Tensor, op: str) -> Any:
    """Reduce a tensor without axes."""
    return _REDUCTIONS[op](ph.reshape(x, (1,)), (0,), False)


@operator("ArgMax", "ArgMin")
def arg_reduce(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0, node: NodeFacts) -> Any:
    function = ph.argmax if node.op == "ArgMax" else ph.argmin
    if not select_last_index:
        return function(x, axis, keepdims=bool(keepdims)).to(ph.int64)
    found = function(ph.flip(x, axis), axis, keepdims=bool(keepdims)).to(ph.int64)
    return x.shape[axis] - 1 - found


@operator("CumSum", "CumProd", host=("axis",))
def cumulative(x: Tensor, axis: Value, *, exclusive: int = 0, reverse: int = 0, node: NodeFacts) -> Any:
    along = integers(axis)[0] % x.ndim
    function, neutral = (ph.cumsum, 0) if node.op == "CumSum" else (ph.cumprod, 1)
    x = ph.flip(x, along) if reverse else x
    if exclusive:
        widths = [(0, 0)] * x.ndim
        widths[along] = (1, 0)
        x = ph.pad(ph.narrow(x, along, 0, x.shape[along] - 1), widths, neutral)
    total = function(x, along, dtype=x.dtype)
    return ph.flip(total, along) if reverse else total
