"""Softmax, and normalization by mean and variance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import accumulator, finfo
from polyhal.torch.registration import aten
from polyhal.torch.table.differentiation import gradients_of
from polyhal.torch.table.operands import F, UnsupportedArgumentsError, assign, cast, zeros

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType
    from polyhal.tensor import Tensor


@aten("_softmax")
def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Any:
    return F["softmax"](cast(x, dtypes.float32 if half_to_float else None), dim)


@aten("_log_softmax")
def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Any:
    return F["log_softmax"](cast(x, dtypes.float32 if half_to_float else None), dim)


@aten("_softmax_backward_data")
def softmax_backward(grad: Tensor, y: Tensor, dim: int, dtype: DType) -> Any:
    return cast(F["softmax_grad"](grad, y, dim), dtype)


@aten("_log_softmax_backward_data")
def log_softmax_backward(grad: Tensor, y: Tensor, dim: int, dtype: DType) -> Any:
    return cast(F["log_softmax_grad"](grad, y, dim), dtype)


def _chosen(found: Sequence[Tensor], mask: Any) -> tuple[Any, ...]:
    return tuple(g if wanted else None for g, wanted in zip(found, mask, strict=True))


# --- layer norm and RMS norm ----------------------------------------------------------------------------------------


def _kept(x: Tensor, axes: int) -> tuple[int, ...]:
    """Return the shape of `x` with its last axes reduced to length 1."""
    return (*x.shape[: x.ndim - axes], *(1,) * axes)


@aten("native_layer_norm")
def layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    """Return the result, and mean and inverse standard deviation, whose normalized axes have length 1."""
    out, mean, rstd = F["layer_norm"](x, weight, bias, len(shape), eps)
    kept = _kept(x, len(shape))
    return out, F["reshape"](mean, kept), F["reshape"](rstd, kept)


@aten("native_layer_norm_backward")
def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> Any:
    rows = x.shape[: x.ndim - len(shape)]
    found = F["layer_norm_grad"](grad, x, weight, F["reshape"](mean, rows), F["reshape"](rstd, rows), len(shape))
    return _chosen(found, mask)


@aten("_fused_rms_norm")
def rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> Any:
    """Return the result and the inverse root mean square."""
    out, rstd = F["rms_norm"](x, weight, len(shape), finfo(accumulator(x.dtype)).eps if eps is None else eps)
    return out, F["reshape"](rstd, _kept(x, len(shape)))


@aten("_fused_rms_norm_backward")
def rms_norm_backward(
    grad: Tensor, x: Tensor, shape: Sequence[int], rstd: Tensor, weight: Tensor | None, mask: Sequence[bool]
) -> Any:
    rows = F["reshape"](rstd, x.shape[: x.ndim - len(shape)])
    return _chosen(F["rms_norm_grad"](grad, x, weight, rows, len(shape)), mask)


# --- batch norm -----------------------------------------------------------------------------------------------------


def _per_channel(statistic: Tensor | None, x: Tensor) -> Any:
    return F["reshape"](statistic, (1, -1, *(1,) * (x.ndim - 2)))


def _by_statistics(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float) -> Any:
    """Normalize channels by given statistics; the result is rounded once."""
    scale = F["rsqrt"](var + eps)
    scale = scale if weight is None else scale * weight
    shift = -(mean * scale) if bias is None else bias - mean * scale
    return cast(x * _per_channel(scale, x) + _per_channel(shift, x), x.dtype)


def _moved(running: Tensor, observed: Any, momentum: float) -> Any:
    return cast(F["lerp"](cast(running, observed.dtype), observed, momentum), running.dtype)


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Any, Any],
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Return the result, mean and inverse standard deviation of the batch (empty in evaluation), and new statistics."""
    wide = accumulator(x.dtype)
    if not training:
        if running[0] is None or running[1] is None:
            raise UnsupportedArgumentsError
        nothing = zeros((0,), wide, x.device)
        return _by_statistics(x, weight, bias, *running, eps), nothing, nothing, *running
    if not x.size:
        statistic = F["full"](x.shape[1:2], math.nan, wide, device=x.device)
        return F["copy"](x), statistic, statistic, *running
    out, mean, var = F["batch_norm"](x, weight, bias, eps)
    count = x.size // x.shape[1]
    unbiased = var * (count / (count - 1)) if count > 1 else var * math.nan
    kept = [None if r is None else _moved(r, seen, momentum) for r, seen in zip(running, (mean, unbiased), strict=True)]
    return out, mean, F["rsqrt"](var + eps), *kept


def _updating(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running: tuple[Any, Any],
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Compute batch norm and update running statistics in place."""
    out, mean, rstd, *kept = _batch_norm(x, weight, bias, running, training, momentum, eps)
    for old, new in zip(running, kept, strict=True):
        if new is not old:
            assign(old, new)
    return out, mean, rstd


@aten("native_batch_norm", "_native_batch_norm_legit", keeps_format=True)
def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    return _updating(x, weight, bias, (mean, var), training, momentum, eps)


@aten("_native_batch_norm_legit.no_stats", keeps_format=True)
def batch_norm_without_statistics(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> Any:
    return _updating(x, weight, bias, (None, None), training, momentum, eps)


@aten("_native_batch_norm_legit_no_training", keeps_format=True)
def batch_norm_in_evaluation(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> Any:
    return _updating(x, weight, bias, (mean, var), False, momentum, eps)


@aten("_native_batch_norm_legit_functional", keeps_format=True)
def batch_norm_functional(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Return the results of `batch_norm`, and new statistics."""
    return _batch_norm(x, weight, bias, (mean, var), training, momentum, eps)


@aten("_batch_norm_with_update", keeps_format=True)
def batch_norm_with_update(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> Any:
    """Return the results of `batch_norm` in training, and an empty reserve."""
    return *_updating(x, weight, bias, (mean, var), True, momentum, eps), zeros((0,), dtypes.uint8, x.device)


@aten("_batch_norm_with_update_functional", keeps_format=True)
def batch_norm_with_update_functional(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> Any:
    """Return the results of `batch_norm` in training, an empty reserve, and new statistics."""
    out, seen, rstd, *kept = _batch_norm(x, weight, bias, (mean, var), True, momentum, eps)
    return out, seen, rstd, zeros((0,), dtypes.uint8, x.device), *kept


@aten("_batch_norm_no_update", keeps_format=True)
def batch_norm_no_update(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> Any:
    """Return the results of `batch_norm` in evaluation, and an empty reserve."""
    out, seen, rstd = _updating(x, weight, bias, (mean, var), False, momentum, eps)
    return out, seen, rstd, zeros((0,), dtypes.uint8, x.device)


@aten("native_batch_norm_backward", keeps_format=True)
def batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Any,
    mean: Tensor,
    rstd: Tensor | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> Any:
    """Return gradients of the input, the weight and the bias."""
    if not x.size:
        channels = zeros(x.shape[1:2], x.dtype if weight is None else weight.dtype, x.device)
        return _chosen((F["copy"](x), channels, channels), mask)
    if training:
        var = 1.0 / F["square"](rstd) - eps
        return _chosen(F["batch_norm_grad"](grad, x, weight, mean, var, eps), mask)

    over = (0, *range(2, x.ndim))
    rstd = F["rsqrt"](running_var + eps)
    dx = cast(grad * _per_channel(rstd if weight is None else rstd * weight, x), x.dtype) if mask[0] else None
    dweight = None
    if mask[1]:
        normal = (x - _per_channel(running_mean, x)) * _per_channel(rstd, x)
        dweight = cast(F["sum"](grad * normal, over), rstd.dtype if weight is None else weight.dtype)
    dbias = cast(F["sum"](grad, over), rstd.dtype if weight is None else weight.dtype) if mask[2] else None
    return dx, dweight, dbias


@aten("batch_norm_backward", keeps_format=True)
def batch_norm_with_update_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    mean: Tensor,
    rstd: Tensor,
    update: bool,
    eps: float,
    mask: Sequence[bool],
    reserve: Tensor,
) -> Any:
    return batch_norm_backward(grad, x, weight, running_mean, running_var, mean, rstd, update, eps, mask)


# --- group norm -----------------------------------------------------------------------------------------------------


@aten("native_group_norm", keeps_format=True)
def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, channels: int, size: int, groups: int, eps: float
) -> Any:
    """Return the result, and mean and inverse standard deviation of each group."""
    return F["group_norm"](x, weight, bias, groups, eps)


@aten("native_group_norm_backward", keeps_format=True)
def group_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor,
    n: int,
    channels: int,
    size: int,
    groups: int,
    mask: Sequence[bool],
) -> Any:
    return _chosen(F["group_norm_grad"](grad, x, weight, mean, rstd, groups), mask)


# --- weight norm ----------------------------------------------------------------------------------------------------


def _norms(v: Tensor, dim: int) -> Any:
    """Return norms of the slices along an axis."""
    return F["vector_norm"](v, tuple(a for a in range(v.ndim) if a != dim), True, 2.0)


@aten("_weight_norm_interface")
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Any:
    """Return `v` scaled to norms `g`, and its former norms."""
    norms = F["reshape"](_norms(v, dim), g.shape)
    return v * (g / norms), norms


@aten("_weight_norm_interface_backward")
def weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Any:
    return gradients_of(lambda v, g: v * (g / F["reshape"](_norms(v, dim), g.shape)), (v, g), (True, True), grad)
