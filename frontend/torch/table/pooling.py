"""Max, average, adaptive and fractional pooling, and max unpooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.nn import functional
from polyhal.nn.functional.spatial import per_axis
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, UnsupportedArgumentsError, pulled_back, zeros

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

Axes = Sequence[int]
_MAX = {2: functional.max_pool2d, 3: functional.max_pool3d}
_MEAN = {2: functional.avg_pool2d, 3: functional.avg_pool3d}
_ADAPTIVE_MAX = {2: functional.adaptive_max_pool2d, 3: functional.adaptive_max_pool3d}
_ADAPTIVE_MEAN = {2: functional.adaptive_avg_pool2d, 3: functional.adaptive_avg_pool3d}
_FRACTIONAL = {2: functional.fractional_max_pool2d, 3: functional.fractional_max_pool3d}


def _put_back(values: Tensor, indices: Tensor, shape: tuple[int, ...], axes: int) -> Any:
    """Scatter-add values into zeros of this shape. Indices count elements of the last `axes` axes, flattened."""
    planes, length = math.prod(shape[: len(shape) - axes]), math.prod(shape[len(shape) - axes :])
    base = zeros((planes, length), values.dtype, values.device)
    if not values.size:
        return F["reshape"](base, shape)
    flat = (planes, values.size // planes)
    return F["reshape"](F["scatter_add"](base, 1, F["reshape"](indices, flat), F["reshape"](values, flat)), shape)


# --- max pooling ----------------------------------------------------------------------------------------------------


def _max_pool(axes: int, x: Tensor, kernel: Axes, stride: Axes, padding: Axes, dilation: Axes, ceil_mode: bool) -> Any:
    return _MAX[axes](x, kernel, stride or None, padding, dilation, ceil_mode, True)


@aten("max_pool2d_with_indices", keeps_format=True)
def max_pool2d(
    x: Tensor, kernel: Axes, stride: Axes = (), padding: Axes = (0,), dilation: Axes = (1,), ceil_mode: bool = False
) -> Any:
    return _max_pool(2, x, kernel, stride, padding, dilation, ceil_mode)


@aten("max_pool3d_with_indices", keeps_format=True)
def max_pool3d(
    x: Tensor, kernel: Axes, stride: Axes = (), padding: Axes = (0,), dilation: Axes = (1,), ceil_mode: bool = False
) -> Any:
    return _max_pool(3, x, kernel, stride, padding, dilation, ceil_mode)


@aten("max_pool2d_with_indices_backward", keeps_format=True)
def max_pool2d_backward(
    grad: Tensor, x: Tensor, kernel: Axes, stride: Axes, padding: Axes, dilation: Axes, ceil_mode: bool, indices: Tensor
) -> Any:
    """Compute the gradient by a kernel that searches each window again, without `indices`: the results are equal."""
    if not grad.size:
        return zeros(x.shape, grad.dtype, grad.device)
    window = [per_axis(v, 2, "window") for v in (kernel, stride or kernel, padding, dilation)]
    if x.ndim == 4:
        return F["max_pool2d_grad"](grad, x, *window, ceil_mode)
    planes = [F["reshape"](t, (1, *t.shape)) for t in (grad, x)]
    return F["reshape"](F["max_pool2d_grad"](*planes, *window, ceil_mode), x.shape)


@aten("max_pool3d_with_indices_backward", keeps_format=True)
def max_pool3d_backward(
    grad: Tensor, x: Tensor, kernel: Axes, stride: Axes, padding: Axes, dilation: Axes, ceil_mode: bool, indices: Tensor
) -> Any:
    return _put_back(grad, indices, x.shape, 3)


# --- average pooling ------------------------------------------------------------------------------------------------


def _avg_pool(
    axes: int, x: Tensor, kernel: Axes, stride: Axes, padding: Axes, ceil_mode: bool, include: bool, divisor: int | None
) -> Any:
    if not x.dtype.is_floating_point:
        raise UnsupportedArgumentsError
    return _MEAN[axes](x, kernel, stride or None, padding, ceil_mode, include, divisor)


@aten("avg_pool2d", keeps_format=True)
def avg_pool2d(
    x: Tensor,
    kernel: Axes,
    stride: Axes = (),
    padding: Axes = (0,),
    ceil_mode: bool = False,
    include: bool = True,
    divisor: int | None = None,
) -> Any:
    return _avg_pool(2, x, kernel, stride, padding, ceil_mode, include, divisor)


@aten("avg_pool3d", keeps_format=True)
def avg_pool3d(
    x: Tensor,
    kernel: Axes,
    stride: Axes = (),
    padding: Axes = (0,),
    ceil_mode: bool = False,
    include: bool = True,
    divisor: int | None = None,
) -> Any:
    return _avg_pool(3, x, kernel, stride, padding, ceil_mode, include, divisor)


@aten("avg_pool2d_backward", keeps_format=True)
def avg_pool2d_backward(grad: Tensor, x: Tensor, *window: Any) -> Any:
    return pulled_back(lambda x: _avg_pool(2, x, *window), grad, x)


@aten("avg_pool3d_backward", keeps_format=True)
def avg_pool3d_backward(grad: Tensor, x: Tensor, *window: Any) -> Any:
    return pulled_back(lambda x: _avg_pool(3, x, *window), grad, x)


# --- adaptive pooling -----------------------------------------------------------------------------------------------


@aten("_adaptive_avg_pool2d", keeps_format=True)
def adaptive_avg_pool2d(x: Tensor, size: Axes) -> Any:
    return _ADAPTIVE_MEAN[2](x, size)


@aten("_adaptive_avg_pool3d", keeps_format=True)
def adaptive_avg_pool3d(x: Tensor, size: Axes) -> Any:
    return _ADAPTIVE_MEAN[3](x, size)


@aten("_adaptive_avg_pool2d_backward", keeps_format=True)
def adaptive_avg_pool2d_backward(grad: Tensor, x: Tensor) -> Any:
    return pulled_back(lambda x: adaptive_avg_pool2d(x, grad.shape[-2:]), grad, x)


@aten("_adaptive_avg_pool3d_backward", keeps_format=True)
def adaptive_avg_pool3d_backward(grad: Tensor, x: Tensor) -> Any:
    return pulled_back(lambda x: adaptive_avg_pool3d(x, grad.shape[-3:]), grad, x)


@aten("adaptive_max_pool2d", keeps_format=True)
def adaptive_max_pool2d(x: Tensor, size: Axes) -> Any:
    return _ADAPTIVE_MAX[2](x, size, True)


@aten("adaptive_max_pool3d", keeps_format=True)
def adaptive_max_pool3d(x: Tensor, size: Axes) -> Any:
    return _ADAPTIVE_MAX[3](x, size, True)


@aten("adaptive_max_pool2d_backward", keeps_format=True)
def adaptive_max_pool2d_backward(grad: Tensor, x: Tensor, indices: Tensor) -> Any:
    return _put_back(grad, indices, x.shape, 2)


@aten("adaptive_max_pool3d_backward", keeps_format=True)
def adaptive_max_pool3d_backward(grad: Tensor, x: Tensor, indices: Tensor) -> Any:
    return _put_back(grad, indices, x.shape, 3)


# --- fractional pooling ---------------------------------------------------------------------------------------------


@aten("fractional_max_pool2d")
def fractional_max_pool2d(x: Tensor, kernel: Axes, size: Axes, samples: Tensor) -> Any:
    return _FRACTIONAL[2](x, kernel, size, None, True, samples)


@aten("fractional_max_pool3d")
def fractional_max_pool3d(x: Tensor, kernel: Axes, size: Axes, samples: Tensor) -> Any:
    return _FRACTIONAL[3](x, kernel, size, None, True, samples)


@aten("fractional_max_pool2d_backward")
def fractional_max_pool2d_backward(grad: Tensor, x: Tensor, kernel: Axes, size: Axes, indices: Tensor) -> Any:
    return _put_back(grad, indices, x.shape, 2)


@aten("fractional_max_pool3d_backward")
def fractional_max_pool3d_backward(grad: Tensor, x: Tensor, kernel: Axes, size: Axes, indices: Tensor) -> Any:
    return _put_back(grad, indices, x.shape, 3)


# --- max unpooling --------------------------------------------------------------------------------------------------


def _unpool(x: Tensor, indices: Tensor, lengths: Axes) -> Any:
    """Scatter values to their indices. The last of duplicate indices is kept: after a pooling their values are equal."""
    shape = (*x.shape[: x.ndim - len(lengths)], *lengths)
    planes, length = math.prod(shape[: len(shape) - len(lengths)]), math.prod(lengths)
    base = zeros((planes, length), x.dtype, x.device)
    if not x.size:
        return F["reshape"](base, shape)
    flat = (planes, x.size // planes)
    return F["reshape"](F["scatter"](base, 1, F["reshape"](indices, flat), F["reshape"](x, flat)), shape)


@aten("max_unpool2d", keeps_format=True)
def max_unpool2d(x: Tensor, indices: Tensor, size: Axes) -> Any:
    return _unpool(x, indices, size)


@aten("max_unpool3d")
def max_unpool3d(x: Tensor, indices: Tensor, size: Axes, stride: Axes, padding: Axes) -> Any:
    return _unpool(x, indices, size)
