"""performer-pytorch: attention by random features."""

from __future__ import annotations

import torch
from performer_pytorch import PerformerLM

from tests.torch.libraries.cases import Made, trained_case


def _performer() -> Made:
    model = PerformerLM(num_tokens=30, max_seq_len=8, dim=16, depth=1, heads=2, dim_head=8, nb_features=8)
    return model, {"x": torch.randint(30, (2, 8))}


trained_case("performer-pytorch", "PerformerLM", _performer)
