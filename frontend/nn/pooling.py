"""Pooling layers over one to three axes."""

from __future__ import annotations

from typing import Any

from polyhal.nn import functional as F
from polyhal.nn.functional.adaptive_pooling import Sizes
from polyhal.nn.functional.pooling import window_of
from polyhal.nn.functional.spatial import Numbers
from polyhal.nn.module import Module
from polyhal.tensor import Tensor


class _MaxPool(Module):
    """What all max pooling layers have."""

    axes = 2

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

    def extra_repr(self) -> str:
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


class MaxPool1d(_MaxPool):
    """The maximum of each window of sequences (N, C, L); windows are `stride` (by default their size) apart."""

    axes = 1

    def forward(self, x: Tensor) -> Any:
        """The maxima, and with `return_indices` their positions."""
        return F.max_pool1d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool2d(_MaxPool):
    """The maximum of each window of images (N, C, H, W); windows are `stride` (by default their size) apart."""

    axes = 2

    def forward(self, x: Tensor) -> Any:
        """The maxima, and with `return_indices` their positions."""
        return F.max_pool2d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool3d(_MaxPool):
    """The maximum of each window of volumes (N, C, D, H, W); windows are `stride` (by default their size) apart."""

    axes = 3

    def forward(self, x: Tensor) -> Any:
        """The maxima, and with `return_indices` their positions."""
        return F.max_pool3d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class _AvgPool(Module):
    """What all average pooling layers have."""

    axes = 2

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

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(_AvgPool):
    """The mean of each window of volumes (N, C, D, H, W), with the zeros of the padding where `count_include_pad`."""

    axes = 3

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool3d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class _LPPool(Module):
    """What all layers of norms have."""

    def __init__(
        self, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPool):
    """The norm `sum(x ** p) ** (1 / p)` of each window of sequences (N, C, L); p is `norm_type`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.lp_pool1d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """The norm `sum(x ** p) ** (1 / p)` of each window of images (N, C, H, W); p is `norm_type`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.lp_pool2d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPool):
    """The norm `sum(x ** p) ** (1 / p)` of each window of volumes (N, C, D, H, W); p is `norm_type`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.lp_pool3d(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class _AdaptiveAvgPool(Module):
    """What all layers of means over an even division have."""

    def __init__(self, output_size: Sizes) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over an even division of sequences (N, C, L) into `output_size` parts; None keeps an axis."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(x, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over an even division of images (N, C, H, W) into `output_size` parts; None keeps an axis."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over an even division of volumes (N, C, D, H, W) into `output_size` parts; None keeps an axis."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(x, self.output_size)


class _AdaptiveMaxPool(Module):
    """What all layers of maxima over an even division have."""

    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over an even division of sequences (N, C, L) into `output_size` parts; None keeps an axis."""

    def forward(self, x: Tensor) -> Any:
        """The maxima, and with `return_indices` their positions."""
        return F.adaptive_max_pool1d(x, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over an even division of images (N, C, H, W) into `output_size` parts; None keeps an axis."""

    def forward(self, x: Tensor) -> Any:
        """The maxima, and with `return_indices` their positions."""
        return F.adaptive_max_pool2d(x, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over an even division of volumes (N, C, D, H, W) into `output_size` parts; None keeps an axis."""

    def forward(self, x: Tensor) -> Any:
        """The maxima, and with `return_indices` their positions."""
        return F.adaptive_max_pool3d(x, self.output_size, self.return_indices)
