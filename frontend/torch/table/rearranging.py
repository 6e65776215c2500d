"""Conversions between windows of images and columns, and reordering of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.nn import functional
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

Axes = Sequence[int]


@aten("im2col")
def im2col(x: Tensor, kernel: Axes, dilation: Axes, padding: Axes, stride: Axes) -> Any:
    return functional.unfold(x, kernel, dilation, padding, stride)


@aten("col2im")
def col2im(x: Tensor, size: Axes, kernel: Axes, dilation: Axes, padding: Axes, stride: Axes) -> Any:
    return functional.fold(x, size, kernel, dilation, padding, stride)


@aten("unfold_backward")
def unfold_backward(grad: Tensor, shape: Axes, dim: int, size: int, step: int) -> Any:
    """Return the gradient for windows along an axis, which are the last axis of `grad`."""
    if not shape:
        return F["sum"](grad, 0)
    axis = dim % len(shape)
    windows = F["moveaxis"](grad, axis, -2)
    return F["moveaxis"](F["fold_windows"](windows, (shape[axis],), (step,), (1,)), -1, axis)


@aten("channel_shuffle", keeps_format=True)
def channel_shuffle(x: Tensor, groups: int) -> Any:
    return functional.channel_shuffle(x, groups)
