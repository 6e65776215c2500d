"""A multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from polyhal import Device, Tensor
from polyhal.nn import Linear, Module, ModuleList


class MLP(Module):
    """Linear layers of the given widths with ReLU between them: `MLP((64, 128, 10))` maps (..., 64) to (..., 10).

    Raises ValueError for fewer than two widths.
    """

    def __init__(self, widths: Sequence[int], device: Device | str | None = None, dtype: object = None) -> None:
        super().__init__()
        if len(widths) < 2:
            raise ValueError(f"widths {list(widths)}; expected at least an input and an output width")
        self.layers = ModuleList(Linear(a, b, device=device, dtype=dtype) for a, b in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for i in range(len(self.layers) - 1):
            x = self.layers[i](x, "relu")
        result: Tensor = self.layers[len(self.layers) - 1](x)
        return result
