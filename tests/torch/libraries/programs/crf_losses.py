"""pytorch-crf: the likelihood of tags."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torchcrf import CRF

from tests.torch.libraries.cases import Made, computed_case, trained_case


def _tagger() -> Made:
    model = nn.ModuleDict({"layers": nn.Linear(6, 4), "crf": CRF(4, batch_first=True)})
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1, 3:] = False
    return model, {"x": torch.randn(3, 5, 6), "tags": torch.randint(4, (3, 5)), "mask": mask}


def _likelihood(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return -model["crf"](model["layers"](inputs["x"]), inputs["tags"], mask=inputs["mask"])


def _decoded(model: Any, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    found = model["crf"].decode(model["layers"](inputs["x"]), mask=inputs["mask"])
    return [torch.tensor(tags) for tags in found]


trained_case("pytorch-crf", "likelihood", _tagger, _likelihood)
computed_case("pytorch-crf", "decoding", _tagger, _decoded)
