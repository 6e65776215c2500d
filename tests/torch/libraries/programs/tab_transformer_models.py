"""tab-transformer-pytorch: a transformer of tables."""

from __future__ import annotations

import torch
from tab_transformer_pytorch import FTTransformer

from tests.torch.libraries.cases import Made, sgd, trained_case


def _table() -> dict[str, torch.Tensor]:
    return {"x_categ": torch.randint(3, (4, 2)), "x_numer": torch.randn(4, 3)}


def _ft() -> Made:
    model = FTTransformer(categories=(3, 4), num_continuous=3, dim=16, dim_out=2, depth=2, heads=2, dim_head=8)
    return model.eval(), _table()


trained_case("tab-transformer-pytorch", "FTTransformer", _ft, optimizer=sgd)
