"""Pooling layers over one to three axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from polyhal.nn import functional as F
from polyhal.nn.functional.adaptive_pooling import Sizes
from polyhal.nn.functional.pooling import window_of
from polyhal.nn.functional.spatial import Numbers
from polyhal.nn.module import Module
from polyhal.tensor import Tensor


class _MaxPool(Module):
    """Base of max pooling layers."""

    axes: ClassVar[int]
    function: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        window_of(self.axes, kernel_size, stride, padding, dilation)  # raises an error here rather than later
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Any:
        """Return the maxima, and with `return_indices` their positions."""
        return self.function(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


class MaxPool1d(_MaxPool):
    """The maximum of each window of sequences (N, C, L); `stride` defaults to the size of the window."""

    axes = 1
    function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The maximum of each window of images (N, C, H, W); `stride` defaults to the size of the window.

    >>> polyhal.nn.MaxPool2d(2)(polyhal.ones(1, 3, 8, 8)).shape
    (1, 3, 4, 4)
    """

    axes = 2
    function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """The maximum of each window of volumes (N, C, D, H, W); `stride` defaults to the size of the window."""

    axes = 3
    function = staticmethod(F.max_pool3d)


class _AvgPool(Module):
    """Base of average pooling layers."""

    axes: ClassVar[int]
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        window_of(self.axes, kernel_size, stride, padding)  # raises an error here rather than later
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Tensor:
        return self.function(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window of sequences (N, C, L), with the zeros of the padding where `count_include_pad`."""

    axes = 1

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.kernel_size, self.stride, self.padding, _ = window_of(1, kernel_size, stride, padding)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool2d(_AvgPool):
    """The mean of each window of images (N, C, H, W), with the zeros of the padding where `count_include_pad`."""

    axes = 2
    function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPool):
    """The mean of each window of volumes (N, C, D, H, W), with the zeros of the padding where `count_include_pad`."""

    axes = 3
    function = staticmethod(F.avg_pool3d)


class _LPPool(Module):
    """Base of pooling layers that compute norms."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """The norm `sum(x ** p) ** (1 / p)` of each window of sequences (N, C, L); p is `norm_type`."""

    function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """The norm `sum(x ** p) ** (1 / p)` of each window of images (N, C, H, W); p is `norm_type`."""

    function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """The norm `sum(x ** p) ** (1 / p)` of each window of volumes (N, C, D, H, W); p is `norm_type`."""

    function = staticmethod(F.lp_pool3d)


class _AdaptiveAvgPool(Module):
    """Base of adaptive average pooling layers."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, output_size: Sizes) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over an even division of sequences (N, C, L) into `output_size` parts; None keeps an axis."""

    function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over an even division of images (N, C, H, W) into `output_size` parts; None keeps an axis."""

    function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over an even division of volumes (N, C, D, H, W) into `output_size` parts; None keeps an axis."""

    function = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxPool(Module):
    """Base of adaptive max pooling layers."""

    function: ClassVar[Callable[..., Any]]

    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        """Return the maxima, and with `return_indices` their positions."""
        return self.function(x, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over an even division of sequences (N, C, L) into `output_size` parts; None keeps an axis."""

    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over an even division of images (N, C, H, W) into `output_size` parts; None keeps an axis."""

    function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over an even division of volumes (N, C, D, H, W) into `output_size` parts; None keeps an axis."""

    function = staticmethod(F.adaptive_max_pool3d)
