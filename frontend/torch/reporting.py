"""Counts of ops that did not run by a kernel of the device, for users and tests."""

from __future__ import annotations

import threading
from typing import NamedTuple

from polyhal.hal.core.dispatch.host_work import HOST_WORK, HostCalls

_MOST_STEPS = 256
"""Number of reasons for eager steps that are kept."""


class Fallback(NamedTuple):
    """Number of calls of an op on a fallback path, and bytes moved."""

    calls: int
    nbytes: int


class FallbackReport(NamedTuple):
    """Result of `report`, by overload: `aten.add.Tensor`."""

    on_cpu: dict[str, Fallback]
    """Ops that ran on the CPU, with the bytes copied there and back."""
    decomposed: dict[str, int]
    """Ops that ran by PyTorch's decompositions, with the number of calls."""
    on_host: dict[str, HostCalls]
    """Polyhal's ops that ran in NumPy on the host, by Polyhal's names, with the bytes copied there and back."""
    eager_steps: dict[str, str]
    """Reasons for which functions under `polyhal.torch.jit` ran eagerly, each with the function's name."""

    def __str__(self) -> str:
        lines = [
            f"{name}: {f.calls} times on the CPU, {f.nbytes} bytes moved" for name, f in sorted(self.on_cpu.items())
        ]
        lines += [f"{name}: {n} times by PyTorch's decomposition" for name, n in sorted(self.decomposed.items())]
        lines += [
            f"polyhal.{name}: {h.calls} times in NumPy on the host, {h.nbytes} bytes moved"
            for name, h in sorted(self.on_host.items())
        ]
        lines += [f"{name} ran eagerly: {problem}" for problem, name in self.eager_steps.items()]
        return "\n".join(lines) or "every op ran by a kernel of the device"


class Counters:
    """Thread-safe counters of calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._on_cpu: dict[str, Fallback] = {}
        self._decomposed: dict[str, int] = {}
        self._host_work = HOST_WORK.counts()
        """Work on the host before the last reset."""
        self._eager_steps: dict[str, str] = {}

    def count_cpu(self, name: str, nbytes: int) -> bool:
        """Count a call on the CPU. Returns whether it was the first call of this op."""
        with self._lock:
            before = self._on_cpu.get(name)
            calls, moved = before or (0, 0)
            self._on_cpu[name] = Fallback(calls + 1, moved + nbytes)
        return before is None

    def count_decomposed(self, name: str) -> None:
        """Count a call that was decomposed."""
        with self._lock:
            self._decomposed[name] = self._decomposed.get(name, 0) + 1

    def note_eager_step(self, name: str, problem: str) -> None:
        """Note why a recorded function runs eagerly."""
        with self._lock:
            if len(self._eager_steps) < _MOST_STEPS:
                self._eager_steps[problem] = name

    def report(self) -> FallbackReport:
        """Return the counts since the last reset."""
        with self._lock:
            host_work = HOST_WORK.since(self._host_work)
            return FallbackReport(dict(self._on_cpu), dict(self._decomposed), host_work, dict(self._eager_steps))

    def reset(self) -> None:
        """Reset counts and warnings."""
        with self._lock:
            self._on_cpu.clear()
            self._decomposed.clear()
            self._eager_steps.clear()
            self._host_work = HOST_WORK.counts()


COUNTERS = Counters()


def report() -> FallbackReport:
    """Report the ops that ran on the CPU, in NumPy or by decomposition since the start or `reset_report`, for printing."""
    return COUNTERS.report()


def reset_report() -> None:
    """Reset the counts of `report`."""
    COUNTERS.reset()
