"""Reading of batches on the host, in the loader's thread or in worker processes. Everything here can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from polyhal.data.dataset import collate, read_batch, read_lazily
from polyhal.data.randomness import seeded
from polyhal.hal.ops.tensor_like import Array
from polyhal.tensor import Tensor


@dataclass(frozen=True)
class BatchRequest:
    """One batch to read. Streams have no indices; without automatic batches there is one index."""

    number: int
    indices: Any
    seed: tuple[int, ...]


class StreamEnd(Exception):  # noqa: N818  it ends a stream, as StopIteration does
    """A stream has no more samples."""


@dataclass
class BatchReader:
    """Reads and collates samples of a dataset."""

    dataset: Any
    batch_size: int | None
    collate_fn: Callable[[Any], Any] | None
    drop_last: bool
    streams: bool
    iterator: Iterator[Any] | None = None

    def restart(self) -> None:
        """Begin an epoch."""
        self.iterator = None

    def read(self, request: BatchRequest, gathers: bool = False) -> Any:
        """Return a batch as arrays; with `gathers`, there may be `LazyRows`. Raises StreamEnd."""
        with seeded(*request.seed):
            if self.streams:
                return self._next()
            if self.batch_size is None and not isinstance(request.indices, (list, np.ndarray)):
                return self._converted(self.dataset[request.indices])
            if self.collate_fn is None:
                return (read_lazily if gathers else read_batch)(self.dataset, np.asarray(request.indices))
            return to_arrays(self.collate_fn([self.dataset[i] for i in _plain(request.indices)]))

    def _next(self) -> Any:
        if self.iterator is None:
            self.iterator = iter(self.dataset)
        if self.batch_size is None:
            for sample in self.iterator:
                return self._converted(sample)
            raise StreamEnd
        samples = list(islice(self.iterator, self.batch_size))
        if not samples or (self.drop_last and len(samples) < self.batch_size):
            raise StreamEnd
        return to_arrays((self.collate_fn or collate)(samples))

    def _converted(self, sample: Array | str) -> Any:
        return to_arrays((self.collate_fn or default_convert)(sample))


def _plain(indices: Array) -> list[Any]:
    return [int(i) if isinstance(i, (int, np.integer)) else i for i in indices]


def default_convert(data: Any) -> Any:
    """Return a sample with its tensors and NumPy numbers as arrays, in its own structure; other values stay as they are."""
    if isinstance(data, (np.ndarray, np.generic, Tensor)):
        return np.asarray(data.numpy() if isinstance(data, Tensor) else data)
    if isinstance(data, dict):
        return {k: default_convert(v) for k, v in data.items()}
    if isinstance(data, (tuple, list)):
        parts = [default_convert(v) for v in data]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    return data


def to_arrays(batch: Any) -> Any:
    """Convert the tensors in the result of a user's collate function to arrays."""
    if isinstance(batch, dict):
        return {k: to_arrays(v) for k, v in batch.items()}
    if isinstance(batch, tuple):
        parts = [to_arrays(v) for v in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if hasattr(batch, "__array__"):
        return np.asarray(batch)
    return batch
