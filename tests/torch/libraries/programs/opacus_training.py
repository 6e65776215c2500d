"""Opacus: gradients of each sample, clipped."""

from __future__ import annotations

import torch
from opacus import GradSampleModule
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _samples() -> Made:
    layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    return GradSampleModule(layers), {"x": torch.randn(4, 1, 8, 8)}


trained_case("opacus", "GradSampleModule", _samples, lambda model, inputs: model(inputs["x"]))
