"""Captum: attributions by gradients and by occlusion."""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import IntegratedGradients, LayerGradCam, Occlusion, Saliency
from torch import nn

from tests.torch.libraries.cases import Made, computed_case


def _classifier() -> Made:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 3))
    return model, {"x": torch.randn(2, 1, 8, 8), "target": torch.tensor([0, 2])}


def _by_gradients(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    with torch.enable_grad():
        x, target = inputs["x"], inputs["target"]
        integrated = IntegratedGradients(model).attribute(x, target=target, n_steps=8)
        return (
            integrated,
            Saliency(model).attribute(x, target=target),
            LayerGradCam(model, model[0]).attribute(x, target),
        )


def _by_occlusion(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    return Occlusion(model).attribute(inputs["x"], (1, 4, 4), target=inputs["target"], strides=(1, 4, 4))


computed_case("captum", "gradients", _classifier, _by_gradients)
computed_case("captum", "occlusion", _classifier, _by_occlusion)
