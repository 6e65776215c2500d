"""pytorch-metric-learning: losses of embeddings."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning import losses, miners
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _embedded(loss: nn.Module) -> Made:
    model = nn.ModuleDict({"layers": nn.Linear(6, 8), "loss": loss})
    return model, {"x": torch.randn(9, 6), "labels": torch.tensor([0, 1, 2] * 3)}


def _plain(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return model["loss"](model["layers"](inputs["x"]), inputs["labels"])


def _mined(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    embedded = model["layers"](inputs["x"])
    return model["loss"](embedded, inputs["labels"], miners.BatchHardMiner()(embedded, inputs["labels"]))


trained_case("pytorch-metric-learning", "NTXentLoss", lambda: _embedded(losses.NTXentLoss()), _plain)
trained_case("pytorch-metric-learning", "ArcFaceLoss", lambda: _embedded(losses.ArcFaceLoss(3, 8)), _plain)
trained_case(
    "pytorch-metric-learning", "TripletMarginLoss, mined", lambda: _embedded(losses.TripletMarginLoss()), _mined
)
