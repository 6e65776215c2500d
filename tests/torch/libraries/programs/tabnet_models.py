"""pytorch-tabnet: its network."""

from __future__ import annotations

import torch
from pytorch_tabnet.tab_network import TabNet

from tests.torch.libraries.cases import Made, sgd, trained_case


def _network() -> Made:
    groups = torch.eye(6)
    model = TabNet(6, 3, n_d=8, n_a=8, n_steps=2, virtual_batch_size=8, group_attention_matrix=groups)
    return model, {"x": torch.randn(16, 6)}


trained_case("pytorch-tabnet", "TabNet", _network, optimizer=sgd)
