"""What did not run by a kernel of the device: counted by op, for users and tests."""

from __future__ import annotations

import threading
from typing import NamedTuple

from polyhal.hal.planning.host_work import HOST_WORK, HostCalls


class Fallback(NamedTuple):
    """How often an op of PyTorch took another way, and what it moved."""

    calls: int
    nbytes: int


class FallbackReport(NamedTuple):
    """What `report` gives, by overload: `aten.add.Tensor`."""

    on_cpu: dict[str, Fallback]
    """Ops that ran on the CPU, with the bytes copied there and back."""
    decomposed: dict[str, int]
    """Ops that PyTorch's own rules expressed by others, with the number of calls."""
    on_host: dict[str, HostCalls]
    """Polyhal's ops that ran in NumPy on the host, by Polyhal's names, with the bytes moved there and back."""

    def __str__(self) -> str:
        lines = [
            f"{name}: {f.calls} times on the CPU, {f.nbytes} bytes moved" for name, f in sorted(self.on_cpu.items())
        ]
        lines += [f"{name}: {n} times by PyTorch's decomposition" for name, n in sorted(self.decomposed.items())]
        lines += [
            f"polyhal.{name}: {h.calls} times in NumPy on the host, {h.nbytes} bytes moved"
            for name, h in sorted(self.on_host.items())
        ]
        return "\n".join(lines) or "every op ran by a kernel of the device"


class Counters:
    """Counts calls, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._on_cpu: dict[str, Fallback] = {}
        self._decomposed: dict[str, int] = {}
        self._host_work = HOST_WORK.counts()
        """The work on the host before the last reset."""

    def count_cpu(self, name: str, nbytes: int) -> bool:
        """Note a call on the CPU. Returns whether it was the first of this op."""
        with self._lock:
            before = self._on_cpu.get(name)
            calls, moved = before or (0, 0)
            self._on_cpu[name] = Fallback(calls + 1, moved + nbytes)
        return before is None

    def count_decomposed(self, name: str) -> None:
        """Note a call that was decomposed."""
        with self._lock:
            self._decomposed[name] = self._decomposed.get(name, 0) + 1

    def report(self) -> FallbackReport:
        """What was counted since the last reset."""
        with self._lock:
            return FallbackReport(dict(self._on_cpu), dict(self._decomposed), HOST_WORK.since(self._host_work))

    def reset(self) -> None:
        """Count from 0, and warn again."""
        with self._lock:
            self._on_cpu.clear()
            self._decomposed.clear()
            self._host_work = HOST_WORK.counts()


COUNTERS = Counters()


def report() -> FallbackReport:
    """Report the ops that ran on the CPU, in NumPy or by decomposition since the start or `reset_report`, for printing."""
    return COUNTERS.report()


def reset_report() -> None:
    """Begin a new report."""
    COUNTERS.reset()
