"""An interrupt at any line of a loader leaves no thread running, and the next epoch is complete."""

from __future__ import annotations

import itertools
import threading
from functools import partial

import numpy as np
import pytest
from interrupts import interrupted_at

from polyhal.data import DataLoader, TensorDataset, delivery
from polyhal.data import loader as loading


def epoch(loader: DataLoader) -> None:
    for _ in loader:
        pass


@pytest.mark.parametrize("prefetch", [1, 2])
def test_an_interrupt_at_any_line_ends_the_threads_of_a_loader(prefetch: int) -> None:
    loader = DataLoader(TensorDataset(np.arange(10)), 3, prefetch=prefetch, device="numpy")
    for line in itertools.count(1):
        error = interrupted_at(line, partial(epoch, loader), loading.__file__, delivery.__file__)
        assert [t.name for t in threading.enumerate() if t.name == "polyhal-data"] == []
        assert [len(batch[0]) for batch in loader] == [3, 3, 3, 1]
        if error is None:
            break
    assert line > 40
