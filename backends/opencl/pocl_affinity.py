"""PoCL affinity: whether PoCL binds its worker threads to cores, one to each.

Some systems, among them virtual machines that pack threads, run two workers on one core for as long as a kernel takes, while
another core is idle (see `pin_workers` in quirks.py). PoCL binds its workers if POCL_AFFINITY is set. It reads the variable
when it is loaded, which happens when the process lists platforms for the first time: before any device is known.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from polyhal.hal.settings import env

_VARIABLE = "POCL_AFFINITY"
_FEWER_THREADS = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")
"""Variables with which users ask for fewer workers than cores. Two such processes would bind all workers to the same cores."""
_LOADED_FILES = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class WorkerAffinity:
    """Whether workers are bound to cores, and why; `polyhal doctor` prints it."""

    bound: bool
    reason: str

    def __str__(self) -> str:
        return f"{'one to a core' if self.bound else 'on any core'}, {self.reason}"


def decide() -> WorkerAffinity:
    """Decide whether to bind workers: if it is safe and the user has not set POCL_AFFINITY.

    POCL_AFFINITY=0 leaves them to the operating system, which is better if other programs keep the cores busy.
    """
    setting = os.environ.get(_VARIABLE)
    if setting is not None:
        return WorkerAffinity(setting.startswith("1"), f"as {_VARIABLE}={setting} says")
    if sys.platform != "linux":
        return WorkerAffinity(False, "as PoCL binds threads on Linux only")
    if env.builds_only():
        # Workers compile too, and helper processes compile beside the workers of the process that started them.
        return WorkerAffinity(False, "as this process only builds kernels")
    fewer = next((v for v in _FEWER_THREADS if os.environ.get(v)), None)
    if fewer is not None:
        return WorkerAffinity(False, f"as {fewer} is set")
    # PoCL numbers cores from 0, and some versions abort the process if it may not use one of them.
    if os.sched_getaffinity(0) != set(range(os.cpu_count() or 0)):
        return WorkerAffinity(False, "as this process may not use all cores")
    return WorkerAffinity(True, f"unless {_VARIABLE}=0")


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """List platforms inside this context. Child processes do not inherit the variable: they decide for themselves."""
    if _VARIABLE in os.environ or not decide().bound or _pocl_is_loaded():
        yield
        return
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        del os.environ[_VARIABLE]


def _pocl_is_loaded() -> bool:
    """Return whether it is too late. Changing the environment beside PoCL's running threads would be a needless risk."""
    try:
        return "libpocl" in _LOADED_FILES.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
