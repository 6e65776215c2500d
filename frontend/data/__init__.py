"""Datasets, samplers, and the loader that makes batches of samples."""

from polyhal.data.combining import ChainDataset, ConcatDataset, IterableDataset, StackDataset
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
from polyhal.data.randomness import sample_generator
from polyhal.data.reading import default_convert
from polyhal.data.samplers import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from polyhal.data.windows import TokenWindows
from polyhal.data.workers import WorkerInfo, get_worker_info

default_collate = collate

__all__ = [
    "BatchSampler",
    "Batched",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "IterableDataset",
    "LazilyBatched",
    "LazyRows",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "TokenWindows",
    "WeightedRandomSampler",
    "WorkerInfo",
    "collate",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
    "sample_generator",
]
