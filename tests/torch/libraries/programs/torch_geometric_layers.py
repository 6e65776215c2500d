"""PyTorch Geometric: three kinds of layers."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric

from tests.torch.libraries.cases import Made, trained_case


class _GraphModel(torch.nn.Module):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x, edges).relu(), edges)
        return torch_geometric.nn.global_mean_pool(x, batch)


def _graph(first: Any, second: Any) -> Made:
    edges = torch.randint(12, (2, 40))
    batch = torch.tensor([0] * 7 + [1] * 5)
    return _GraphModel(first, second), {"x": torch.randn(12, 6), "edges": edges, "batch": batch}


_layers = torch_geometric.nn
trained_case("torch-geometric", "GCN", lambda: _graph(_layers.GCNConv(6, 16), _layers.GCNConv(16, 4)))
trained_case("torch-geometric", "GAT", lambda: _graph(_layers.GATConv(6, 8, heads=2), _layers.GATConv(16, 4)))
trained_case("torch-geometric", "GraphSAGE", lambda: _graph(_layers.SAGEConv(6, 16), _layers.SAGEConv(16, 4)))
