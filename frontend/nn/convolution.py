"""Convolution layers over one to three axes, and their transposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from polyhal.creation import empty
from polyhal.hal.device import Device
from polyhal.hal.errors import ShapeError, message
from polyhal.nn import functional as F
from polyhal.nn import init
from polyhal.nn.functional.convolution import Padding
from polyhal.nn.functional.spatial import Numbers, per_axis
from polyhal.nn.module import Module
from polyhal.nn.parameter import Parameter
from polyhal.tensor import Tensor

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


class _Convolution(Module):
    """Base of convolution layers: arguments, parameters and their initialization."""

    axes: ClassVar[int]
    transposed: ClassVar[bool]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers,
        padding: Padding,
        dilation: Numbers,
        output_padding: Numbers,
        groups: int,
        bias: bool,
        padding_mode: PaddingMode,
        device: Device | str | None,
        dtype: object,
    ) -> None:
        super().__init__()
        axes, transposed = self.axes, self.transposed
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"{groups} groups do not divide {in_channels} input and {out_channels} output channels")
        modes = ("zeros",) if transposed else ("zeros", "reflect", "replicate", "circular")
        if padding_mode not in modes:
            raise ValueError(message(None, f"padding_mode {padding_mode!r}", expected=" or ".join(modes)))
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = per_axis(kernel_size, axes, "kernel_size")
        self.stride = per_axis(stride, axes, "stride")
        self.padding: Literal["same", "valid"] | tuple[int, ...] = (
            padding if isinstance(padding, str) else per_axis(padding, axes, "padding")
        )
        self.sides = () if isinstance(self.padding, str) else self.padding
        self.dilation = per_axis(dilation, axes, "dilation")
        self.output_padding = per_axis(output_padding, axes, "output_padding")
        self.groups = groups
        self.padding_mode: PaddingMode = padding_mode
        channels = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        shape = (channels[0], channels[1] // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, dtype, device))
        self.bias = Parameter(empty((out_channels,), dtype, device)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        fan_in = init.fans(self.weight)[0]
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zeros, ones = (0,) * self.axes, (1,) * self.axes
        defaults = (("padding", zeros), ("dilation", ones), ("output_padding", zeros), ("groups", 1))
        for name, default in defaults:
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else text + f", padding_mode={self.padding_mode}"

    def _padded(self, x: Tensor) -> tuple[Tensor, Padding]:
        """`x` with a border of its own elements, and the zeros that are left to add."""
        if self.padding_mode == "zeros" or self.padding == "valid":
            return x, self.padding
        if self.padding == "same":
            totals = [(k - 1) * d for k, d in zip(self.kernel_size, self.dilation, strict=True)]
            sides = [(t // 2, t - t // 2) for t in totals]
        else:
            sides = [(p, p) for p in self.sides]
        return F.pad(x, [w for side in reversed(sides) for w in side], self.padding_mode), 0

    def _crop(self, x: Tensor, output_size: Sequence[int] | None) -> Numbers:
        """Return the output padding of a transposed convolution with results of size `output_size`. Raises ShapeError."""
        if output_size is None:
            return self.output_padding
        lengths = x.shape[x.ndim - self.axes :]
        wanted = tuple(output_size)[-self.axes :]
        parts = zip(lengths, self.kernel_size, self.stride, self.sides, strict=True)
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for (n, k, s, p), d in zip(parts, self.dilation, strict=True)]
        extra = tuple(w - n for w, n in zip(wanted, least, strict=True))
        if any(e < 0 or e >= max(s, d) for e, s, d in zip(extra, self.stride, self.dilation, strict=True)):
            raise ShapeError(message(None, f"output_size {tuple(output_size)}", expected=f"from {tuple(least)} on"))
        return extra


class _Conv(_Convolution):
    """Base of convolution layers that are not transposed."""

    transposed = False
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: Padding = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, x: Tensor) -> Tensor:
        x, padding = self._padded(x)
        return self.function(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class _ConvTranspose(_Convolution):
    """Base of transposed convolution layers."""

    transposed = True
    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: Numbers = 0,
        output_padding: Numbers = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Numbers = 1,
        padding_mode: PaddingMode = "zeros",
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """`output_size` are the lengths of the result's spatial axes, in place of `output_padding`."""
        crop = self._crop(x, output_size)
        return self.function(x, self.weight, self.bias, self.stride, self.sides, crop, self.groups, self.dilation)


class Conv1d(_Conv):
    """Cross-correlation of (N, in_channels, L) with learned kernels.

    `weight` is (out, in/groups, R). See `Conv2d` for the arguments.
    """

    axes = 1
    function = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """Cross-correlation of (N, in_channels, H, W) with learned kernels.

    `padding` adds zeros on both sides, or elements of the image itself by `padding_mode`; "same" keeps the size (stride 1
    only). `weight` (out, in/groups, R, S) and `bias` (out,) start uniform in +-1/sqrt(fan_in). Raises ValueError if
    `groups` does not divide the channels.

    >>> layer = polyhal.nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1)
    >>> layer(polyhal.ones(4, 3, 32, 32)).shape
    (4, 8, 16, 16)
    """

    axes = 2
    function = staticmethod(F.conv2d)


class Conv3d(_Conv):
    """Cross-correlation of (N, in_channels, D, H, W) with learned kernels.

    `weight` is (out, in/groups, Q, R, S). See `Conv2d` for the arguments.
    """

    axes = 3
    function = staticmethod(F.conv3d)


class ConvTranspose1d(_ConvTranspose):
    """The transpose of a convolution, which takes (N, in_channels, L) to larger sizes with learned kernels.

    `weight` is (in, out/groups, R). See `ConvTranspose2d` for the arguments.
    """

    axes = 1
    function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """The transpose of a convolution, which takes (N, in_channels, H, W) to larger sizes with learned kernels.

    `output_padding` chooses among the sizes that a convolution would take to the input's; a call may name the size
    instead. `weight` is (in, out/groups, R, S). Raises ValueError if `groups` does not divide the channels.
    """

    axes = 2
    function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """The transpose of a convolution, which takes (N, in_channels, D, H, W) to larger sizes with learned kernels.

    `weight` is (in, out/groups, Q, R, S). See `ConvTranspose2d` for the arguments.
    """

    axes = 3
    function = staticmethod(F.conv_transpose3d)
