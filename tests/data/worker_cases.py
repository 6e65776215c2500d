"""Datasets and functions that worker processes import."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from polyhal.data import IterableDataset, get_worker_info, sample_generator
from polyhal.hal.system.discovery.registry import registry


class Squares:
    """i, i squared, the process and the worker."""

    def __init__(self, n: int = 10) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, Any]:
        info = get_worker_info()
        return {
            "x": np.full((3,), index, np.float32),
            "y": index**2,
            "process": os.getpid(),
            "worker": -1 if info is None else info.id,
        }


class Failing(Squares):
    """Fails at sample 5."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            raise LookupError(f"sample {index} is missing")
        return super().__getitem__(index)


class Dying(Squares):
    """Ends its process at sample 5."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            os._exit(3)
        return super().__getitem__(index)


class Killed(Squares):
    """A dataset that kills its process by a signal at sample 5."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            os.kill(os.getpid(), self.number)
        return super().__getitem__(index)


class Slow(Squares):
    """Takes long."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(60)
        return super().__getitem__(index)


class Noise(Squares):
    """Random numbers of three sources."""

    def __getitem__(self, index: int) -> Any:
        return np.array([sample_generator().random(), np.random.random(), random.random()])


class OfTensors:
    """A dataset of tensors that records the devices that each process has opened."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], ",".join(d.name for d in registry().opened())


class Shards(IterableDataset):
    """0 to 9, split between workers."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return iter(range(10) if info is None else range(info.id, 10, info.num_workers))


class Empty:
    """Marks what `greet` did."""

    greeted: int | None = None


def greet(worker: int) -> None:
    Empty.greeted = worker


class Greeted(Squares):
    """The argument of the function for workers."""

    def __getitem__(self, index: int) -> Any:
        return -1 if Empty.greeted is None else Empty.greeted


def total(samples: list[Any]) -> Any:
    return {"sum": np.asarray(sum(s["y"] for s in samples)), "count": len(samples)}
