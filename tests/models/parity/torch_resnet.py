"""ResNet in PyTorch, with torchvision's names."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class Block(nn.Module):
    """A basic block, or with `bottleneck` one of a 1x1, a 3x3 and a 1x1 convolution."""

    def __init__(self, wide: int, planes: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        out = planes * (4 if bottleneck else 1)
        if bottleneck:
            self.conv1 = nn.Conv2d(wide, planes, 1, bias=False)
            self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
            self.conv3 = nn.Conv2d(planes, out, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(out)
        else:
            self.conv1 = nn.Conv2d(wide, planes, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(planes), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU()
        self.bottleneck = bottleneck
        self.downsample = None
        if stride != 1 or wide != out:
            self.downsample = nn.Sequential(nn.Conv2d(wide, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.bottleneck:
            out = self.bn3(self.conv3(self.relu(out)))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class TorchResNet(nn.Module):
    """`polyhal.models.ResNet` in PyTorch."""

    def __init__(
        self, layers: Sequence[int], classes: int = 1000, channels: int = 3, width: int = 64, bottleneck: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layers = len(layers)
        wide = width
        for i, count in enumerate(layers):
            planes = width * 2**i
            blocks = []
            for j in range(count):
                blocks.append(Block(wide, planes, 2 if i and not j else 1, bottleneck))
                wide = planes * (4 if bottleneck else 1)
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(wide, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for i in range(self.layers):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(self.avgpool(x).flatten(1))
