"""Datasets and loaders under PyTorch's name for the package; see `polyhal.data`."""

from polyhal.data import DataLoader, Dataset, Subset, TensorDataset, random_split

__all__ = ["DataLoader", "Dataset", "Subset", "TensorDataset", "random_split"]
