"""kornia: filters, warps, colours and a loss."""

from __future__ import annotations

from typing import Any

import kornia
import torch
from torch import nn

from tests.torch.libraries.cases import Made, computed_case, trained_case


class _Warped(nn.Module):
    """An affine warp with parameters, blurred."""

    def __init__(self) -> None:
        super().__init__()
        self.angle, self.shift = nn.Parameter(torch.tensor([0.1, -0.2])), nn.Parameter(torch.zeros(2, 2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the dissimilarity from other images."""
        rotated = kornia.geometry.transform.rotate(x, 30 * self.angle)
        moved = kornia.geometry.transform.translate(rotated, self.shift)
        return kornia.losses.ssim_loss(kornia.filters.gaussian_blur2d(moved, (3, 3), (1.0, 1.0)), y, 3)


def _warped() -> Made:
    return _Warped(), {"x": torch.rand(2, 3, 12, 12), "y": torch.rand(2, 3, 12, 12)}


def _seen(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    x = inputs["x"]
    return [
        kornia.filters.sobel(x),
        kornia.filters.median_blur(x, (3, 3)),
        kornia.color.rgb_to_hsv(x),
        kornia.color.rgb_to_lab(x),
        kornia.morphology.dilation(x, torch.ones(3, 3, device=x.device)),
    ]


trained_case("kornia", "registration", _warped)
computed_case("kornia", "filters and colours", lambda: (None, {"x": torch.rand(2, 3, 12, 12)}), _seen)
