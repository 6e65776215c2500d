"""torchmetrics: scores of batches."""

from __future__ import annotations

from typing import Any

import torch
import torchmetrics
from torchmetrics import image, regression

from tests.torch.libraries.cases import Made, computed_case


def _scores() -> Made:
    logits = torch.randn(20, 4)
    return None, {"logits": logits.softmax(1), "labels": torch.randint(4, (20,)), "images": torch.rand(2, 2, 3, 16, 16)}


def _classes(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    where, options = inputs["labels"].device, {"num_classes": 4, "task": "multiclass"}
    kinds = (torchmetrics.Accuracy, torchmetrics.F1Score, torchmetrics.ConfusionMatrix, torchmetrics.AUROC)
    return [kind(**options).to(where)(inputs["logits"], inputs["labels"]) for kind in kinds]


def _pictures(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
    first, second = inputs["images"]
    measures = (
        image.PeakSignalNoiseRatio(data_range=1.0),
        image.StructuralSimilarityIndexMeasure(data_range=1.0),
        image.TotalVariation(),
        regression.MeanSquaredError(),
    )
    return [m.to(first.device)(*((first,) if i == 2 else (first, second))) for i, m in enumerate(measures)]


computed_case("torchmetrics", "classification", _scores, _classes)
computed_case("torchmetrics", "images", _scores, _pictures)
