"""Softmax, and normalization by mean and variance."""

from __future__ import annotations

from typing import Any

from polyhal.hal import dtypes
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, cast


@aten("_softmax")
def softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    return F["softmax"](cast(x, dtypes.float32 if half_to_float else None), dim)


@aten("_log_softmax")
def log_softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    return F["log_softmax"](cast(x, dtypes.float32 if half_to_float else None), dim)


@aten("_softmax_backward_data")
def softmax_backward(grad: Any, y: Any, dim: int, dtype: Any) -> Any:
    return cast(F["softmax_grad"](grad, y, dim), dtype)


@aten("_log_softmax_backward_data")
def log_softmax_backward(grad: Any, y: Any, dim: int, dtype: Any) -> Any:
    return cast(F["log_softmax_grad"](grad, y, dim), dtype)


@aten("native_layer_norm")
def layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The result, and the mean and the inverse standard deviation with axes of length 1 in place of those normalized."""
    out, mean, rstd = F["layer_norm"](x, weight, bias, len(shape), eps)
    kept = (*x.shape[: x.ndim - len(shape)], *(1,) * len(shape))
    return out, F["reshape"](mean, kept), F["reshape"](rstd, kept)


@aten("native_layer_norm_backward")
def layer_norm_backward(grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any) -> Any:
    rows = x.shape[: x.ndim - len(shape)]
    found = F["layer_norm_grad"](grad, x, weight, F["reshape"](mean, rows), F["reshape"](rstd, rows), len(shape))
    return tuple(g if wanted else None for g, wanted in zip(found, mask, strict=True))
