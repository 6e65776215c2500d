"""Random numbers of samples: the same for a batch whichever thread or process reads it, however many there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from polyhal.random import default_generator


class _BatchRandom(threading.local):
    """The generator of the batch that this thread reads."""

    generator: np.random.Generator | None = None


_CURRENT = _BatchRandom()


@contextmanager
def seeded(*seed: int) -> Iterator[None]:
    """Give `sample_generator` a stream of its own inside the block."""
    previous, _CURRENT.generator = _CURRENT.generator, np.random.default_rng(seed)
    try:
        yield
    finally:
        _CURRENT.generator = previous


def sample_generator() -> np.random.Generator:
    """Return NumPy's generator for transforms of samples.

    In a `DataLoader` it depends on the seed, the epoch and the number of the batch alone. Elsewhere, each call starts one from
    the default generator.
    """
    if _CURRENT.generator is not None:
        return _CURRENT.generator
    return np.random.default_rng(default_generator.words(4).tolist())
