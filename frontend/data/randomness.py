"""Random numbers of samples, which depend on the batch, not on the number of threads or processes that read it."""

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
    """Use a separate stream for `sample_generator` in the block."""
    previous, _CURRENT.generator = _CURRENT.generator, np.random.default_rng(seed)
    try:
        yield
    finally:
        _CURRENT.generator = previous


def sample_generator() -> np.random.Generator:
    """Return NumPy's generator for transforms of samples.

    In a `DataLoader` it depends only on the seed, the epoch and the number of the batch. Elsewhere, each call starts a
    generator from the default generator.
    """
    if _CURRENT.generator is not None:
        return _CURRENT.generator
    return np.random.default_rng(default_generator.words(4).tolist())
