"""Data-parallel replica of a layer, and its communication with the replicas on other devices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from polyhal.tensor import Tensor


class Replica(Protocol):
    """One of several copies of a model; each computes its rows of a batch.

    All of them make the same exchanges in the same order. Exchanges are differentiable, and become part of captured steps.
    """

    def all_gather(self, x: Tensor, axis: int = 0) -> Tensor:
        """Join the replicas' tensors along `axis`, where their lengths may differ. Raises ShapeError, UnsupportedDTypeError."""
        ...

    def all_reduce(self, x: Tensor) -> Tensor:
        """Add the replicas' tensors of one shape (...) and dtype. Raises ShapeError, UnsupportedDTypeError."""
        ...

    def all_counts(self, count: int) -> tuple[int, ...]:
        """Return one number of each replica, at least 0, such as the rows that it has."""
        ...


class _Current(threading.local):
    replica: Replica | None = None


_current = _Current()


def current_replica() -> Replica | None:
    """Return the replica that runs now, if a layer of its `DataParallel` model sets `exchanges_with_replicas`; else None.

    >>> class Centred(polyhal.nn.Module):
    ...     exchanges_with_replicas = True
    ...     def forward(self, x):
    ...         replica = polyhal.parallel.current_replica()
    ...         rows = x if replica is None else replica.all_gather(x)
    ...         return x - rows.mean(0)
    >>> model = polyhal.parallel.DataParallel(Centred(), ["numpy", "numpy:no_f64"])
    >>> model(polyhal.tensor([[1.0], [2.0], [6.0]], device="numpy")).tolist()
    [[-2.0], [-1.0], [3.0]]
    """
    return _current.replica


@contextmanager
def running(replica: Replica) -> Iterator[None]:
    """Let `replica` be the current one of this thread inside the block."""
    previous, _current.replica = _current.replica, replica
    try:
        yield
    finally:
        _current.replica = previous
