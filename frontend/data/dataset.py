"""Datasets: collections of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyhal.hal.errors import ShapeError, message
from polyhal.random import Generator, default_generator
from polyhal.tensor import Tensor


class Dataset(Protocol):
    """An object with a length and samples by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


@runtime_checkable
class Batched(Protocol):
    """A dataset that reads many samples at once, which is much faster than stacking them one by one."""

    def batch(self, indices: np.ndarray) -> Any:
        """Return the collated samples at `indices`, as arrays."""


class LazyRows:
    """Rows of an array that are read later, directly into their final memory, in parts."""

    __slots__ = ("_array", "_indices", "dtype", "nbytes", "shape")

    def __init__(self, array: np.ndarray, indices: np.ndarray) -> None:
        """Raises IndexError for indices outside of the array."""
        if indices.size and not -len(array) <= indices.min() <= indices.max() < len(array):
            raise IndexError(
                message("LazyRows", f"rows {indices.min()} to {indices.max()}", expected=f"{len(array)} rows")
            )
        self._array = array
        self._indices = indices
        self.dtype = array.dtype
        self.shape = (len(indices), *array.shape[1:])
        self.nbytes = math.prod(self.shape) * array.dtype.itemsize

    def read(self, begin: int, end: int, out: np.ndarray) -> None:
        """Read rows `begin` to `end - 1` into `out`, which is contiguous and has their shape and dtype."""
        # mode="raise" would make a temporary copy; the constructor has checked the indices.
        np.take(self._array, self._indices[begin:end], axis=0, out=out, mode="wrap")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._array[self._indices], self.dtype if dtype is None else dtype)


@runtime_checkable
class LazilyBatched(Protocol):
    """A dataset whose batches are rows of arrays, which are read as soon as there is memory for them."""

    def lazy_batch(self, indices: np.ndarray) -> Any:
        """Return the collated samples at `indices`, with `LazyRows` in place of some arrays."""


class TensorDataset:
    """Arrays of equal length: sample i is the tuple of their rows i. Tensors are copied to the host on construction.

    Raises ValueError without arrays, and ShapeError for different lengths.
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ValueError(message("TensorDataset", "got no arrays", expected="at least one"))
        self.arrays: tuple[np.ndarray, ...] = tuple(
            a.numpy() if isinstance(a, Tensor) else np.asarray(a) for a in arrays
        )
        lengths = [len(a) if a.ndim else -1 for a in self.arrays]
        if len(set(lengths)) != 1 or lengths[0] < 0:
            raise ShapeError(
                message(
                    "TensorDataset", f"arrays of shapes {[a.shape for a in self.arrays]}", expected="equal first axes"
                )
            )

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(a[index] for a in self.arrays)

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the rows at `indices` of each array."""
        return tuple(a[indices] for a in self.arrays)

    def lazy_batch(self, indices: np.ndarray) -> tuple[np.ndarray | LazyRows, ...]:
        """Return the rows at `indices`; reading is deferred if possible."""
        return tuple(LazyRows(a, indices) if a.flags.c_contiguous and a.ndim > 1 else a[indices] for a in self.arrays)


class Subset:
    """The samples of a dataset at some indices."""

    def __init__(self, dataset: Dataset, indices: Sequence[int] | np.ndarray) -> None:
        self.dataset = dataset
        self.indices = np.asarray(indices, np.int64)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[index])]

    def batch(self, indices: np.ndarray) -> Any:
        """Return the collated samples at `indices`."""
        return read_batch(self.dataset, self.indices[indices])

    def lazy_batch(self, indices: np.ndarray) -> Any:
        """Return the collated samples at `indices`, with `LazyRows` if the dataset has them."""
        return read_lazily(self.dataset, self.indices[indices])


def random_split(dataset: Dataset, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset]:
    """Split a dataset at random into parts of the given lengths, or fractions that add up to 1.

    With fractions, samples left over by rounding go to the first parts. Raises ValueError if the parts do not add up.
    """
    n = len(dataset)
    if math.isclose(sum(lengths), 1.0) and any(isinstance(x, float) for x in lengths):
        counts = [math.floor(n * x) for x in lengths]
        for i in range(n - sum(counts)):
            counts[i % len(counts)] += 1
    else:
        counts = [int(x) for x in lengths]
    if sum(counts) != n or any(c < 0 for c in counts):
        raise ValueError(
            message(
                "random_split",
                f"lengths {list(lengths)} for {n} samples",
                expected=f"a sum of {n}, or fractions of sum 1",
            )
        )
    order = (generator or default_generator).permutation(n)
    edges = np.cumsum([0, *counts])
    return [Subset(dataset, order[a:b]) for a, b in pairwise(edges)]


def read_batch(dataset: Dataset, indices: np.ndarray) -> Any:
    """Read and collate samples, in one call if the dataset supports it."""
    if isinstance(dataset, Batched):
        return dataset.batch(indices)
    return collate([dataset[int(i)] for i in indices])


def read_lazily(dataset: Dataset, indices: np.ndarray) -> Any:
    """Read and collate samples, with `LazyRows` in place of arrays if the dataset supports them."""
    return dataset.lazy_batch(indices) if isinstance(dataset, LazilyBatched) else read_batch(dataset, indices)


def collate(batch: Sequence[Any]) -> Any:
    """Stack samples along a new first axis; tuples, lists and dictionaries element by element.

    Python floats become float32. Raises TypeError for other types, and ShapeError for shapes that differ.
    """
    first = batch[0]
    if isinstance(first, dict):
        return {key: collate([s[key] for s in batch]) for key in first}
    if isinstance(first, (tuple, list)):
        parts = [collate(part) for part in zip(*batch, strict=True)]
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*parts)
        return type(first)(parts)
    if isinstance(first, str):
        return list(batch)
    if isinstance(first, float) and not isinstance(first, np.generic):
        return np.asarray(batch, np.float32)
    arrays = [s.numpy() if isinstance(s, Tensor) else np.asarray(s) for s in batch]
    if arrays[0].dtype == object:
        raise TypeError(
            message(
                "collate",
                f"samples have the type {type(first).__name__}",
                expected="arrays or numbers",
                fix="pass collate_fn",
            )
        )
    if any(a.shape != arrays[0].shape for a in arrays):
        raise ShapeError(
            message(
                "collate",
                f"samples of shapes {sorted({a.shape for a in arrays})}",
                expected="one shape",
                fix="pad them, or pass collate_fn",
            )
        )
    return np.stack(arrays)
