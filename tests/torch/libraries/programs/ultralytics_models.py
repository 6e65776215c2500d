"""Ultralytics: a YOLO with its loss, and its predictions."""

from __future__ import annotations

import torch
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import IterableSimpleNamespace

from tests.torch.libraries.cases import Made, computed_case, floats, trained_case


def _yolo() -> Made:
    """The model of the library with its own loss. Its command line knows names of devices of its own, and accepts no others."""
    model = DetectionModel("yolov8n.yaml", nc=3, verbose=False)
    model.args = IterableSimpleNamespace(box=7.5, cls=0.5, dfl=1.5)
    batch = {
        "img": torch.rand(2, 3, 64, 64),
        "cls": torch.tensor([[0.0], [2.0]]),
        "bboxes": torch.tensor([[0.5, 0.5, 0.6, 0.4], [0.3, 0.6, 0.3, 0.5]]),
        "batch_idx": torch.tensor([0.0, 1.0]),
    }
    return model.train(), batch


trained_case("ultralytics", "YOLOv8, its loss", _yolo, lambda model, batch: model(batch))


def _detector() -> Made:
    return DetectionModel("yolov8n.yaml", nc=3, verbose=False).eval(), {"images": torch.rand(1, 3, 64, 64)}


computed_case(
    "ultralytics", "YOLOv8, predictions", _detector, lambda model, inputs: next(floats(model(inputs["images"])))
)
