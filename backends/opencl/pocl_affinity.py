"""PoCL affinity: whether PoCL binds its worker threads to one core each.

Some systems, among them virtual machines that pack threads, run two workers on one core for as long as a kernel takes,
while another core is idle (see `pin_workers` in quirks.py). PoCL binds its workers if POCL_AFFINITY is set. It reads
the variable when it is loaded, which happens when the process first lists platforms, before it has opened a device.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from polyhal.hal.core.settings import env

_VARIABLE = "POCL_AFFINITY"
_FEWER_THREADS = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")
"""Variables that reduce the workers below the number of cores.

Two such processes would bind their workers to the same cores.
"""
_LOADED_FILES = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class WorkerAffinity:
    """Decision whether workers are bound to cores, with its reason; `polyhal doctor` prints it."""

    bound: bool
    reason: str

    def __str__(self) -> str:
        return f"{'one to a core' if self.bound else 'on any core'}, {self.reason}"


def decide() -> WorkerAffinity:
    """Decide whether to bind workers: only if it is safe and the user has not set POCL_AFFINITY.

    POCL_AFFINITY=0 leaves scheduling to the operating system, which is better if other programs keep the cores busy.
    """
    setting = os.environ.get(_VARIABLE)
    if setting is not None:
        return WorkerAffinity(setting.startswith("1"), f"as {_VARIABLE}={setting} says")
    if sys.platform != "linux":
        return WorkerAffinity(False, "as PoCL binds threads on Linux only")
    if env.builds_only():
        # Workers compile too, and helper processes compile concurrently with the workers of their parent process.
        return WorkerAffinity(False, "as this process only builds kernels")
    fewer = next((v for v in _FEWER_THREADS if os.environ.get(v)), None)
    if fewer is not None:
        return WorkerAffinity(False, f"as {fewer} is set")
    # PoCL numbers cores from 0, and some versions abort a process that is not allowed to use one of them.
    if os.sched_getaffinity(0) != set(range(os.cpu_count() or 0)):
        return WorkerAffinity(False, "as this process may not use all cores")
    return WorkerAffinity(True, f"unless {_VARIABLE}=0")


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """Return a context for listing platforms. Child processes do not inherit the variable: they make their own decision."""
    if _VARIABLE in os.environ or not decide().bound or _pocl_is_loaded():
        yield
        return
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        del os.environ[_VARIABLE]


def _pocl_is_loaded() -> bool:
    """Return whether PoCL has already read the variable.

    Changing the environment of its running threads is a needless risk.
    """
    try:
        return "libpocl" in _LOADED_FILES.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
