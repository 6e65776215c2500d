"""Convolution and transposed convolution over one to three axes, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.nn import functional
from polyhal.torch.registration import aten
from polyhal.torch.table.differentiation import gradients_of
from polyhal.torch.table.operands import F

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

Axes = Sequence[int]
_FORWARD = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


@aten("convolution", "convolution_overrideable", keeps_format=True)
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Axes,
    padding: Axes,
    dilation: Axes,
    transposed: bool,
    output_padding: Axes,
    groups: int,
) -> Any:
    axes = weight.ndim - 2
    if transposed:
        steps, sides, extra, spread = (_each(v, axes) for v in (stride, padding, output_padding, dilation))
        return _TRANSPOSED[axes](x, weight, bias, steps, sides, extra, groups, spread)
    return _FORWARD[axes](x, weight, bias, _each(stride, axes), _each(padding, axes), _each(dilation, axes), groups)


def _each(values: Axes, axes: int) -> tuple[int, ...]:
    """Return one number per axis: PyTorch allows a single number for all axes."""
    return tuple(values) * axes if len(values) == 1 else tuple(values)


@aten("convolution_backward")
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Axes,
    padding: Axes,
    dilation: Axes,
    transposed: bool,
    output_padding: Axes,
    groups: int,
    mask: Sequence[bool],
) -> Any:
    """Return gradients of the input, the weight and the bias."""
    axes = weight.ndim - 2
    steps, sides, spread, extra = (_each(v, axes) for v in (stride, padding, dilation, output_padding))
    dbias = F["sum"](grad, (0, *range(2, grad.ndim))) if mask[2] else None
    if axes == 3 or any(e >= s for e, s in zip(extra, steps, strict=True)) or not (x.size and grad.size):

        def again(x: Tensor, weight: Tensor) -> Any:
            return convolution(x, weight, None, steps, sides, spread, transposed, extra, groups)

        return (*gradients_of(again, (x, weight), mask[:2], grad), dbias)
    window = (steps, sides, spread)
    if axes == 1:
        grad, x, weight = (F["unsqueeze"](t, 2) for t in (grad, x, weight))
        window = ((1, *steps), (0, *sides), (1, *spread))
    planes = _transposed_planes_backward if transposed else _planes_backward
    dx, dweight = planes(grad, x, weight, window, groups, mask)
    if axes == 1:
        dx, dweight = (None if t is None else F["squeeze"](t, 2) for t in (dx, dweight))
    return dx, dweight, dbias


@aten("convolution_backward_overrideable")
def convolution_backward_without_bias_sizes(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Axes,
    padding: Axes,
    dilation: Axes,
    transposed: bool,
    output_padding: Axes,
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    return convolution_backward(
        grad, x, weight, None, stride, padding, dilation, transposed, output_padding, groups, output_mask
    )


def _planes_backward(grad: Tensor, x: Tensor, weight: Tensor, window: Any, groups: int, mask: Sequence[bool]) -> Any:
    dx = F["conv2d_input_grad"](grad, weight, x.shape, *window, groups) if mask[0] else None
    return dx, F["conv2d_weight_grad"](grad, x, weight.shape[2:], *window, groups) if mask[1] else None


def _transposed_planes_backward(
    grad: Tensor, x: Tensor, weight: Tensor, window: Any, groups: int, mask: Sequence[bool]
) -> Any:
    """Return gradients of a transposed convolution: a convolution, and its weight gradient with input and gradient swapped."""
    dx = F["conv2d"](grad, weight, None, *window, groups) if mask[0] else None
    return dx, F["conv2d_weight_grad"](x, grad, weight.shape[2:], *window, groups) if mask[1] else None
