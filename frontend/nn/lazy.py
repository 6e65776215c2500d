"""Layers that learn their number of input features from their first input.

They have no parameters before it: call a model with lazy layers once before its parameters go to an optimizer or its
state is loaded. The first call turns them into the layer that they are named after.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from polyhal.nn.batch_norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from polyhal.nn.construction import constructed
from polyhal.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from polyhal.nn.linear import Linear
from polyhal.nn.module import Module
from polyhal.tensor import Tensor

_AFFINE = {"affine": True, "track_running_stats": True}


class LazyLayer(Module):
    """Base of lazy layers. Their arguments are those of the layer they become, without the number of input features."""

    becomes: ClassVar[type[Module]]
    axis: ClassVar[int]
    """Which axis of the first input has the features."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults that differ from those of the layer that this one becomes, as they do in PyTorch."""

    def __init_subclass__(cls) -> None:
        """Show the arguments of the layer that this one becomes, without its number of input features."""
        super().__init_subclass__()
        signature = inspect.signature(cls.becomes)
        _features, *parameters = signature.parameters.values()
        parameters = [p.replace(default=cls.defaults.get(p.name, p.default)) for p in parameters]
        cls.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        bound = inspect.signature(type(self)).bind(*args, **kwargs).arguments
        self._arguments = {**self.defaults, **bound}

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        arguments = self._arguments
        training, hooks, features = self.training, self._hooks, input.shape[self.axis]
        del self._arguments
        layer: Any = self
        object.__setattr__(layer, "__class__", self.becomes)
        layer.__init__(features, **{"device": input.device, **arguments})
        layer.__dict__["_construction"] = constructed(type(layer), (features,), arguments)
        layer.__dict__["_hooks"] = hooks
        layer.train(training)
        return layer.forward(input, *args, **kwargs)


class LazyLinear(LazyLayer):
    """A `Linear` layer for inputs of any width: LazyLinear(out_features, bias=True)."""

    becomes, axis = Linear, -1


class LazyConv1d(LazyLayer):
    """A convolution for any number of channels: LazyConv1d(out_channels, kernel_size, ...)."""

    becomes, axis = Conv1d, -2


class LazyConv2d(LazyLayer):
    """A convolution for any number of channels: LazyConv2d(out_channels, kernel_size, ...)."""

    becomes, axis = Conv2d, -3


class LazyConv3d(LazyLayer):
    """A convolution for any number of channels: LazyConv3d(out_channels, kernel_size, ...)."""

    becomes, axis = Conv3d, -4


class LazyConvTranspose1d(LazyLayer):
    """A transposed convolution for any number of channels: LazyConvTranspose1d(out_channels, kernel_size, ...)."""

    becomes, axis = ConvTranspose1d, -2


class LazyConvTranspose2d(LazyLayer):
    """A transposed convolution for any number of channels: LazyConvTranspose2d(out_channels, kernel_size, ...)."""

    becomes, axis = ConvTranspose2d, -3


class LazyConvTranspose3d(LazyLayer):
    """A transposed convolution for any number of channels: LazyConvTranspose3d(out_channels, kernel_size, ...)."""

    becomes, axis = ConvTranspose3d, -4


class LazyBatchNorm1d(LazyLayer):
    """A `BatchNorm1d` for any number of channels: LazyBatchNorm1d(eps, momentum, ...)."""

    becomes, axis = BatchNorm1d, 1


class LazyBatchNorm2d(LazyLayer):
    """A `BatchNorm2d` for any number of channels: LazyBatchNorm2d(eps, momentum, ...)."""

    becomes, axis = BatchNorm2d, 1


class LazyBatchNorm3d(LazyLayer):
    """A `BatchNorm3d` for any number of channels: LazyBatchNorm3d(eps, momentum, ...)."""

    becomes, axis = BatchNorm3d, 1


class LazyInstanceNorm1d(LazyLayer):
    """A `InstanceNorm1d` for any number of channels: LazyInstanceNorm1d(eps, momentum, ...)."""

    becomes, axis = InstanceNorm1d, -2
    defaults = _AFFINE


class LazyInstanceNorm2d(LazyLayer):
    """A `InstanceNorm2d` for any number of channels: LazyInstanceNorm2d(eps, momentum, ...)."""

    becomes, axis = InstanceNorm2d, -3
    defaults = _AFFINE


class LazyInstanceNorm3d(LazyLayer):
    """A `InstanceNorm3d` for any number of channels: LazyInstanceNorm3d(eps, momentum, ...)."""

    becomes, axis = InstanceNorm3d, -4
    defaults = _AFFINE
