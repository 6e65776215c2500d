"""Datasets made of other datasets, and datasets that are streams. Names and arguments are PyTorch's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from polyhal.data.dataset import Dataset
from polyhal.hal.errors import message


class IterableDataset:
    """A stream of samples. Subclasses define `__iter__`; `get_worker_info` identifies the worker, for its part."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__")


class ConcatDataset:
    """The samples of several datasets, one after another. Raises ValueError without datasets."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError(message("ConcatDataset", "got no datasets", expected="at least one"))
        self.cumulative_sizes = list(accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(message("ConcatDataset", f"index {index} for {len(self)} samples"))
        which = bisect_right(self.cumulative_sizes, place)
        return self.datasets[which][place - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset):
    """The samples of several streams, one after another."""

    def __init__(self, datasets: Iterable[Iterable[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        lengths: list[int] = [len(dataset) for dataset in self.datasets]  # type: ignore[arg-type]
        return sum(lengths)


class StackDataset:
    """Datasets of equal length, combined: samples are tuples of the datasets' samples, or dictionaries of named ones.

    Raises ValueError without datasets, for named and unnamed ones in one call, and for different lengths.
    """

    def __init__(self, *args: Dataset, **kwargs: Dataset) -> None:
        self.datasets: tuple[Dataset, ...] | dict[str, Dataset] = args or kwargs
        if not self.datasets or (args and kwargs):
            raise ValueError(
                message("StackDataset", f"{len(args)} datasets and {len(kwargs)} named ones", expected="either")
            )
        lengths = [len(d) for d in (*args, *kwargs.values())]
        if len(set(lengths)) != 1:
            raise ValueError(message("StackDataset", f"datasets of lengths {lengths}", expected="equal lengths"))
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)
