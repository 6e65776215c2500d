"""Frameworks that the benchmark `kernels` compares: Polyhal, and every other one that is installed.

Each module has a function `competitors`, which returns competitors by the name used in tables. A competitor prepares an op
workload as a `WorkloadRunner`, or returns the reason why it cannot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.op_workloads import OpWorkload


class WorkloadRunner(Protocol):
    """A workload with its inputs on the device."""

    def wall(self, calls: int) -> float:
        """Return seconds per call by the host's clock, including the wait for the device."""

    def device(self, calls: int) -> float:
        """Return seconds per call by the device's timestamps of kernels, or by the host's clock if it has none."""

    def replayed(self, calls: int) -> float:
        """Return seconds per replay of a recorded call by the host's clock, many in a row; as `wall` without recordings."""

    def result(self) -> np.ndarray:
        """Return the result of the forward pass, for tests that all frameworks compute the same."""


class Competitor(Protocol):
    """A framework on a device."""

    settle: float
    """Seconds after a call until its idle threads stop spinning."""

    def prepare(self, workload: OpWorkload) -> WorkloadRunner | str:
        """Prepare a workload; returns the reason as text if the framework does not support it."""


@dataclass(frozen=True, slots=True)
class HostRunner:
    """A runner for a device without timestamps."""

    call: Callable[[], Any]
    wait: Callable[[], object] = lambda: None
    download: Callable[[Any], np.ndarray] = np.asarray

    def wall(self, calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            self.call()
        self.wait()
        return (time.perf_counter() - begin) / calls

    def device(self, calls: int) -> float:
        return self.wall(calls)

    def replayed(self, calls: int) -> float:
        return self.wall(calls)

    def result(self) -> np.ndarray:
        return self.download(self.call())
