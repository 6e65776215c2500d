"""Samplers: the order in which a loader reads samples. Names and arguments equal PyTorch's `torch.utils.data`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np

from polyhal.hal.errors import message
from polyhal.random import Generator, default_generator
from polyhal.tensor import Tensor

_DRAWN_AT_ONCE = 2**20
"""Maximum number of random indices in memory."""


class Sampler:
    """Base of samplers: iterates over indices of samples. Subclasses define `__iter__`, and `__len__` if it is known."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__")


class SequentialSampler(Sampler):
    """All samples in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """Samples in random order, a new one each epoch; with `replacement`, each is drawn from all of them.

    `num_samples` is the length of an epoch, by default the dataset's. Without replacement, more samples than that are several
    permutations in sequence. Raises ValueError.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if num_samples is not None and num_samples < 1:
            raise ValueError(message("RandomSampler", f"num_samples is {num_samples}", expected="1 or more"))
        self.data_source = data_source
        self.replacement = replacement
        self.generator = generator
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        """Number of samples per epoch."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, count, generator = len(self.data_source), self.num_samples, self.generator or default_generator
        if self.replacement:
            for start in range(0, count, _DRAWN_AT_ONCE):
                yield from _integers(generator, n, min(count - start, _DRAWN_AT_ONCE)).tolist()
            return
        while count > 0:
            yield from generator.permutation(n)[:count].tolist()
            count -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Some indices in random order, without replacement."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = (self.generator or default_generator).permutation(len(self.indices))
        return (int(self.indices[i]) for i in order)

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices drawn with probabilities proportional to `weights`.

    Without `replacement`, each index is drawn at most once. Source: Efraimidis and Spirakis, "Weighted random sampling with a
    reservoir", 2006. Raises ValueError for weights that are negative, not finite, or too few that are positive.
    """

    def __init__(
        self, weights: Any, num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        values = np.asarray(weights.numpy() if isinstance(weights, Tensor) else weights, np.float64)
        if num_samples < 1:
            raise ValueError(message("WeightedRandomSampler", f"num_samples is {num_samples}", expected="1 or more"))
        if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or not (values > 0).any():
            raise ValueError(
                message(
                    "WeightedRandomSampler", f"weights of shape {values.shape}", expected="finite weights, some above 0"
                )
            )
        if not replacement and num_samples > np.count_nonzero(values):
            raise ValueError(
                message(
                    "WeightedRandomSampler",
                    f"{num_samples} samples of {np.count_nonzero(values)} with weights above 0",
                    fix="pass replacement=True",
                )
            )
        self.weights: np.ndarray = values
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        generator = self.generator or default_generator
        if self.replacement:
            return self._drawn(generator)
        with np.errstate(divide="ignore"):
            keys = -np.log1p(-_uniform(generator, len(self.weights))) / self.weights
        keys[self.weights == 0] = np.inf
        return iter(np.argsort(keys, kind="stable")[: self.num_samples].tolist())

    def _drawn(self, generator: Generator) -> Iterator[int]:
        edges, last = np.cumsum(self.weights), np.flatnonzero(self.weights)[-1]
        for start in range(0, self.num_samples, _DRAWN_AT_ONCE):
            drawn = _uniform(generator, min(self.num_samples - start, _DRAWN_AT_ONCE))
            yield from np.minimum(np.searchsorted(edges, drawn * edges[-1], side="right"), last).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` indices of another sampler. The last one may be shorter; `drop_last` omits it then.

    Raises ValueError for `batch_size` below 1.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if batch_size < 1:
            raise ValueError(message("BatchSampler", f"batch_size is {batch_size}", expected="1 or more"))
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        full, rest = divmod(len(self.sampler), self.batch_size)  # type: ignore[arg-type]
        return full + (1 if rest and not self.drop_last else 0)


def _uniform(generator: Generator, count: int) -> np.ndarray:
    """Draw numbers in [0, 1) with 53 bits."""
    words = generator.words(2 * count).astype(np.uint64)
    wide = words[:count] << np.uint64(32) | words[count:]
    return np.ldexp((wide >> np.uint64(11)).astype(np.float64), -53)


def _integers(generator: Generator, bound: int, count: int) -> np.ndarray:
    """Draw integers from 0 to `bound` - 1."""
    words = generator.words(2 * count).astype(np.uint64)
    wide = words[:count] << np.uint64(32) | words[count:]
    return (wide % np.uint64(bound)).astype(np.int64)
