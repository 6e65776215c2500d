"""Padding layers over one to three axes."""

from __future__ import annotations

from polyhal.nn import functional as F
from polyhal.nn.functional.spatial import Numbers, per_axis
from polyhal.nn.module import Module
from polyhal.tensor import Tensor


class _Padding(Module):
    """Base of padding layers: widths (before, after) for each axis, the last axis first, or one number for all."""

    axes = 2
    mode = "constant"

    def __init__(self, padding: Numbers) -> None:
        super().__init__()
        self.padding = per_axis(padding, 2 * self.axes, "padding")

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadding(_Padding):
    """Base of layers that pad with a number."""

    def __init__(self, padding: Numbers, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadding):
    """`value` added around the last axis; `padding` is one width or (before, after) pairs from the last axis on."""

    axes = 1


class ConstantPad2d(_ConstantPadding):
    """`value` added around the last two axes; `padding` is one width or (before, after) pairs from the last axis on."""

    axes = 2


class ConstantPad3d(_ConstantPadding):
    """`value` added around the last three axes; `padding` is one width or (before, after) pairs from the last axis on."""

    axes = 3


class ZeroPad1d(_Padding):
    """Zeros added around the last axis; `padding` is one width or (before, after) pairs from the last axis on."""

    axes = 1


class ZeroPad2d(_Padding):
    """Zeros added around the last two axes; `padding` is one width or (before, after) pairs from the last axis on."""

    axes = 2


class ZeroPad3d(_Padding):
    """Zeros added around the last three axes; `padding` is one width or (before, after) pairs from the last axis on."""

    axes = 3


class ReflectionPad1d(_Padding):
    """The last axis mirrored at its edges, which are not repeated; `padding` is as in `ZeroPad1d`."""

    axes = 1
    mode = "reflect"


class ReflectionPad2d(_Padding):
    """Each of the last two axes mirrored at its edges, which are not repeated; `padding` is as in `ZeroPad2d`."""

    axes = 2
    mode = "reflect"


class ReflectionPad3d(_Padding):
    """Each of the last three axes mirrored at its edges, which are not repeated; `padding` is as in `ZeroPad3d`."""

    axes = 3
    mode = "reflect"


class ReplicationPad1d(_Padding):
    """The last axis extended by its outer elements; `padding` is as in `ZeroPad1d`."""

    axes = 1
    mode = "replicate"


class ReplicationPad2d(_Padding):
    """Each of the last two axes extended by its outer elements; `padding` is as in `ZeroPad2d`."""

    axes = 2
    mode = "replicate"


class ReplicationPad3d(_Padding):
    """Each of the last three axes extended by its outer elements; `padding` is as in `ZeroPad3d`."""

    axes = 3
    mode = "replicate"


class CircularPad1d(_Padding):
    """The last axis extended from its other end; `padding` is as in `ZeroPad1d`."""

    axes = 1
    mode = "circular"


class CircularPad2d(_Padding):
    """Each of the last two axes extended from its other end; `padding` is as in `ZeroPad2d`."""

    axes = 2
    mode = "circular"


class CircularPad3d(_Padding):
    """Each of the last three axes extended from its other end; `padding` is as in `ZeroPad3d`."""

    axes = 3
    mode = "circular"
