"""The frameworks that are measured: ours, and whichever of the others are installed.

Each module has one function, `competitors`, that returns what can be measured by the name it gets in tables. A competitor
prepares a workload into a `Runner`, or answers why it cannot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.workloads import Workload


class Runner(Protocol):
    """A workload with its data in place."""

    def wall(self, calls: int) -> float:
        """Seconds per call by the host's clock, until the device is done."""

    def device(self, calls: int) -> float:
        """Seconds per call by the device's clock where there is one, without the time between kernels."""

    def result(self) -> np.ndarray:
        """What a call computes, its forward pass alone, for tests that all frameworks do the same work."""


class Competitor(Protocol):
    """A framework on a device."""

    settle: float
    """Seconds after a call until its threads leave the cores to others."""

    def prepare(self, workload: Workload) -> Runner | str:
        """The workload, ready to run; or why it is not measured here."""


@dataclass(frozen=True, slots=True)
class HostRunner:
    """A runner whose device has no clock of its own."""

    call: Callable[[], Any]
    wait: Callable[[], object] = lambda: None
    download: Callable[[Any], np.ndarray] = np.asarray

    def wall(self, calls: int) -> float:
        begun = time.perf_counter()
        for _ in range(calls):
            self.call()
        self.wait()
        return (time.perf_counter() - begun) / calls

    def device(self, calls: int) -> float:
        return self.wall(calls)

    def result(self) -> np.ndarray:
        return self.download(self.call())
