"""A small convolutional network for small grey images."""

from __future__ import annotations

from polyhal import Device, Tensor
from polyhal.nn import BatchNorm2d, Conv2d, Dropout, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential


class CNN(Module):
    """Two convolutions with batch norm, a pooling step and a linear layer.

    Images (N, 1, size, size) to logits (N, classes). Raises ValueError for an odd size.
    """

    def __init__(
        self, size: int = 8, classes: int = 10, channels: int = 16, device: Device | str | None = None
    ) -> None:
        super().__init__()
        if size % 2:
            raise ValueError(f"images of size {size}; expected an even number")
        wide = 2 * channels
        self.features = Sequential(
            Conv2d(1, channels, 3, padding=1, bias=False, device=device),
            BatchNorm2d(channels, device=device),
            ReLU(),
            Conv2d(channels, wide, 3, padding=1, bias=False, device=device),
            BatchNorm2d(wide, device=device),
            ReLU(),
            MaxPool2d(2),
        )
        self.classifier = Sequential(Flatten(), Dropout(0.25), Linear(wide * (size // 2) ** 2, classes, device=device))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.classifier(self.features(x))
        return result
