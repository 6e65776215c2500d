"""Residual networks for images. Source: He et al., arXiv:1512.03385; state-dict keys are torchvision's, so its weights load.

As in torchvision, a bottleneck block strides in its 3x3 convolution ("ResNet v1.5").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal import Device, Tensor
from polyhal.nn import (
    AdaptiveAvgPool2d,
    BatchNorm2d,
    Conv2d,
    Identity,
    Linear,
    MaxPool2d,
    Module,
    ReLU,
    Sequential,
    init,
)


class BasicBlock(Module):
    """Two 3x3 convolutions and a shortcut: (N, inplanes, H, W) to (N, planes, H/stride, W/stride)."""

    expansion = 1
    """Output channels per `planes`."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: Module | None = None,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.conv1 = Conv2d(inplanes, planes, 3, stride, 1, bias=False, **place)
        self.bn1 = BatchNorm2d(planes, **place)
        self.relu = ReLU()
        self.conv2 = Conv2d(planes, planes, 3, 1, 1, bias=False, **place)
        self.bn2 = BatchNorm2d(planes, **place)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.relu(out + shortcut)
        return result

    def zero_last_scale(self) -> None:
        """Make the block an identity, except for the shortcut's projection, until it is trained."""
        init.zeros_(self.bn2.get_parameter("weight"))


class Bottleneck(Module):
    """A 1x1, a 3x3 and a 1x1 convolution and a shortcut: (N, inplanes, H, W) to (N, 4 planes, H/stride, W/stride)."""

    expansion = 4
    """Output channels per `planes`."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: Module | None = None,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.conv1 = Conv2d(inplanes, planes, 1, bias=False, **place)
        self.bn1 = BatchNorm2d(planes, **place)
        self.conv2 = Conv2d(planes, planes, 3, stride, 1, bias=False, **place)
        self.bn2 = BatchNorm2d(planes, **place)
        self.conv3 = Conv2d(planes, planes * self.expansion, 1, bias=False, **place)
        self.bn3 = BatchNorm2d(planes * self.expansion, **place)
        self.relu = ReLU()
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.relu(out + shortcut)
        return result

    def zero_last_scale(self) -> None:
        """Make the block an identity, except for the shortcut's projection, until it is trained."""
        init.zeros_(self.bn3.get_parameter("weight"))


class ResNet(Module):
    """Images (N, in_channels, H, W) to logits (N, num_classes).

    `layers` is the number of blocks per stage; each stage but the first halves the image and doubles the channels, which
    start at `width`. With `small_images` the network starts with one 3x3 convolution, for images of about 32 x 32, instead
    of a strided 7x7 convolution and pooling. `zero_init_residual` starts each block as the identity (Goyal et al.,
    arXiv:1706.02677). Raises ValueError unless there are 1 to 4 stages.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        in_channels: int = 3,
        width: int = 64,
        small_images: bool = False,
        zero_init_residual: bool = False,
        device: Device | str | None = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        if not 1 <= len(layers) <= 4:
            raise ValueError(f"{len(layers)} stages; expected 1 to 4")
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.conv1 = (
            Conv2d(in_channels, width, 3, 1, 1, bias=False, **place)
            if small_images
            else Conv2d(in_channels, width, 7, 2, 3, bias=False, **place)
        )
        self.bn1 = BatchNorm2d(width, **place)
        self.relu = ReLU()
        self.maxpool = Identity() if small_images else MaxPool2d(3, 2, 1)
        self.stages = [f"layer{i + 1}" for i in range(len(layers))]
        """Names of the stages, which are children."""
        inplanes = width
        for i, (name, count) in enumerate(zip(self.stages, layers, strict=True)):
            planes = width * 2**i
            setattr(self, name, _stage(block, inplanes, planes, count, 1 if i == 0 else 2, place))
            inplanes = planes * block.expansion
        self.avgpool = AdaptiveAvgPool2d((1, 1))
        self.fc = Linear(inplanes, num_classes, **place)
        self.reset_parameters(zero_init_residual)

    def reset_parameters(self, zero_init_residual: bool = False) -> None:
        """Draw new weights of convolutions, by He et al.'s rule; optionally zero the last scale of each block."""
        for module in self.modules():
            if isinstance(module, Conv2d):
                init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(module, BasicBlock | Bottleneck):
                module.zero_last_scale()

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in self.stages:
            x = getattr(self, name)(x)
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


def _stage(
    block: type[BasicBlock] | type[Bottleneck],
    inplanes: int,
    planes: int,
    count: int,
    stride: int,
    place: dict[str, Any],
) -> Sequential:
    """Return `count` blocks. The first one strides and, if the shape changes, projects its shortcut."""
    wide = planes * block.expansion
    downsample = None
    if stride != 1 or inplanes != wide:
        downsample = Sequential(Conv2d(inplanes, wide, 1, stride, bias=False, **place), BatchNorm2d(wide, **place))
    first = block(inplanes, planes, stride, downsample, **place)
    return Sequential(first, *(block(wide, planes, **place) for _ in range(count - 1)))


def resnet18(num_classes: int = 1000, **options: Any) -> ResNet:
    """Make a ResNet-18 with random weights; `options` are passed to `ResNet`."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, **options)


def resnet34(num_classes: int = 1000, **options: Any) -> ResNet:
    """Make a ResNet-34 with random weights; `options` are passed to `ResNet`."""
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, **options)


def resnet50(num_classes: int = 1000, **options: Any) -> ResNet:
    """Make a ResNet-50 with random weights; `options` are passed to `ResNet`."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, **options)
