"""tab-transformer-pytorch: two transformers of tables."""

from __future__ import annotations

import torch
from tab_transformer_pytorch import FTTransformer, TabTransformer

from tests.torch.libraries.cases import Made, trained_case


def _table() -> dict[str, torch.Tensor]:
    return {"x_categ": torch.randint(3, (4, 2)), "x_numer": torch.randn(4, 3)}


def _ft() -> Made:
    model = FTTransformer(categories=(3, 4), num_continuous=3, dim=16, dim_out=2, depth=2, heads=2, dim_head=8)
    return model.eval(), _table()


def _tab() -> Made:
    model = TabTransformer(categories=(3, 4), num_continuous=3, dim=16, dim_out=2, depth=2, heads=2, dim_head=8)
    return model.eval(), {"x_categ": _table()["x_categ"], "x_cont": torch.randn(4, 3)}


trained_case("tab-transformer-pytorch", "FTTransformer", _ft)
trained_case("tab-transformer-pytorch", "TabTransformer", _tab)
