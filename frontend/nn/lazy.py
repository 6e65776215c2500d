"""Layers that learn their number of input features from their first input.

Before it, their parameters have no shape and no elements: call a model with lazy layers once, or load its state, before its
parameters go to an optimizer. That turns a lazy layer into the layer that it is named after.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from polyhal.hal.device import Device
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
from polyhal.nn.parameter import UninitializedBuffer, UninitializedParameter, is_uninitialized
from polyhal.nn.state import shape_at
from polyhal.random import default_generator
from polyhal.tensor import Tensor

_AFFINE = {"affine": True, "track_running_stats": True}
_FEATURES = ("in_features", "in_channels", "num_features")
"""How layers call their number of input features."""


class LazyLayer(Module):
    """Base of lazy layers. They take the arguments of the layer that they become, without the number of input features."""

    becomes: ClassVar[type[Module]]
    axis: ClassVar[int]
    """Which axis of the first input has the features."""
    _arguments: dict[str, Any]
    weight_axis: ClassVar[int] = 0
    """Which axis of the weight has them, divided by the number of groups."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults that differ from the defaults of the layer that this one becomes, as in PyTorch."""

    def __init_subclass__(cls) -> None:
        """Show the arguments of the layer that this one becomes, without its number of input features."""
        super().__init_subclass__()
        signature = inspect.signature(cls.becomes)
        _features, *parameters = signature.parameters.values()
        parameters = [p.replace(default=cls.defaults.get(p.name, p.default)) for p in parameters]
        cls.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        fields = self.__dict__
        bound = inspect.signature(type(self)).bind(*args, **kwargs).arguments
        fields["_arguments"] = {**self.defaults, **bound}
        example = self._example()
        for name, value in vars(example).items():
            if name not in fields and not isinstance(value, Tensor) and name not in example._buffers:
                fields[name] = value
        for name in _FEATURES:
            if name in fields:
                fields[name] = 0
        for name in example._parameters:
            fields.pop(name, None)
            old = example.__dict__[name]
            new = None if old is None else UninitializedParameter(device=old.device, dtype=old.dtype)
            self.register_parameter(name, new)
        for name, persistent in example._buffers.items():
            old = example.__dict__[name]
            known = old is None or not old.ndim  # a counter
            self.register_buffer(
                name, old if known else UninitializedBuffer(device=old.device, dtype=old.dtype), persistent
            )

    def _example(self) -> Module:
        """Return the smallest layer of the kind, which has all members but in another shape. Draws no random numbers."""
        position = default_generator.get_state()
        try:
            layer: Any = self.becomes
            example: Module = layer(self._arguments.get("groups", 1), **self._arguments)
            return example
        finally:
            default_generator.set_state(position)

    def extra_repr(self) -> str:
        return self.becomes.extra_repr(self)

    def has_uninitialized_params(self) -> bool:
        """Return whether members have no shape yet."""
        members = (self.__dict__[name] for name in (*self._parameters, *self._buffers))
        return any(map(is_uninitialized, members))

    def initialize_parameters(self, input: Tensor) -> None:
        """Become the layer for inputs like `input`, on its device, with initial values."""
        self._become(input.shape[self.axis], input.device)

    def resize(self, state: Mapping[str, Any], prefix: str) -> None:
        """Become the layer that a state dict is of, if it holds tensors for members that have no shape."""
        for name in (*self._parameters, *self._buffers):
            member, key = self.__dict__[name], prefix + name
            counts_outputs = name == "bias" and "num_features" not in self.__dict__
            if counts_outputs or key not in state or not is_uninitialized(member):
                continue
            if not is_uninitialized(state[key]):
                shape = shape_at(state, key)
                axis = self.weight_axis if len(shape) > 1 else 0
                groups = self.__dict__.get("groups", 1) if axis else 1
                self._become(shape[axis] * groups, member.device)
                return

    def _become(self, features: int, device: Device) -> None:
        """Turn into the layer for that many features; members remain the same objects."""
        arguments, training, hooks = self._arguments, self.training, self._hooks
        members = {n: x for n, x in vars(self).items() if is_uninitialized(x)}
        first = next(iter(members.values()), None)
        dtype = {} if first is None else {"dtype": first.dtype}
        layer: Any = self
        layer.__dict__.clear()
        object.__setattr__(layer, "__class__", self.becomes)
        layer.__init__(features, **{"device": device, **arguments, **dtype})
        layer.__dict__["_construction"] = constructed(type(layer), (features,), arguments)
        layer.__dict__["_hooks"] = hooks
        for name, member in members.items():
            member.adopt(layer.__dict__[name])
            layer.__dict__[name] = member
        layer.train(training)

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(input)
        return self.forward(input, *args, **kwargs)  # of the layer that it is now


class LazyLinear(LazyLayer):
    """A `Linear` layer for inputs of any width: LazyLinear(out_features, bias=True)."""

    becomes, axis, weight_axis = Linear, -1, 1


class LazyConv1d(LazyLayer):
    """A convolution for any number of channels: LazyConv1d(out_channels, kernel_size, ...)."""

    becomes, axis, weight_axis = Conv1d, -2, 1


class LazyConv2d(LazyLayer):
    """A convolution for any number of channels: LazyConv2d(out_channels, kernel_size, ...)."""

    becomes, axis, weight_axis = Conv2d, -3, 1


class LazyConv3d(LazyLayer):
    """A convolution for any number of channels: LazyConv3d(out_channels, kernel_size, ...)."""

    becomes, axis, weight_axis = Conv3d, -4, 1


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
    """An `InstanceNorm1d` for any number of channels, affine and with running statistics unless said otherwise."""

    becomes, axis = InstanceNorm1d, -2
    defaults = _AFFINE


class LazyInstanceNorm2d(LazyLayer):
    """An `InstanceNorm2d` for any number of channels, affine and with running statistics unless said otherwise."""

    becomes, axis = InstanceNorm2d, -3
    defaults = _AFFINE


class LazyInstanceNorm3d(LazyLayer):
    """An `InstanceNorm3d` for any number of channels, affine and with running statistics unless said otherwise."""

    becomes, axis = InstanceNorm3d, -4
    defaults = _AFFINE
