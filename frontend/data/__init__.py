"""Datasets and the loader that makes batches of them."""

from polyhal.data.dataset import (
    Batched,
    Dataset,
    LazilyBatched,
    LazyRows,
    Subset,
    TensorDataset,
    collate,
    random_split,
)
from polyhal.data.loader import DataLoader
from polyhal.data.windows import TokenWindows

__all__ = [
    "Batched",
    "DataLoader",
    "Dataset",
    "LazilyBatched",
    "LazyRows",
    "Subset",
    "TensorDataset",
    "TokenWindows",
    "collate",
    "random_split",
]
