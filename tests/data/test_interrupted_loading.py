"""Interrupts at every line of a loader leave no thread behind, and the next epoch reads everything."""

from __future__ import annotations

import itertools
import sys
import threading
from types import FrameType
from typing import Any

import numpy as np
import pytest

from polyhal.data import DataLoader, TensorDataset
from polyhal.data import loader as loading


def interrupted_epoch(loader: DataLoader, line: int) -> bool:
    """Read an epoch with an interrupt at the line of that number, counted over lines as they first run."""
    seen: set[int] = set()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != loading.__file__:
            return None
        if event == "line":
            seen.add(frame.f_lineno)
            if len(seen) == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for _ in loader:
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("prefetch", [1, 2])
def test_an_interrupt_at_any_line_ends_the_threads_of_a_loader(prefetch: int) -> None:
    loader = DataLoader(TensorDataset(np.arange(10)), 3, prefetch=prefetch, device="numpy")
    for line in itertools.count(1):
        interrupted = interrupted_epoch(loader, line)
        assert [t.name for t in threading.enumerate() if t.name == "polyhal-data"] == []
        assert [len(batch[0]) for batch in loader] == [3, 3, 3, 1]
        if not interrupted:
            break
    assert line > 40
