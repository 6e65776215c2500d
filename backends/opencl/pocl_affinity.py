"""Which processor cores the worker threads of PoCL run on.

Some systems, virtual machines that pack threads among them, keep two of them on one core for the short time that a kernel
takes, while another core is idle: a product of two 256 x 256 matrices was seen to take 1.7 times as long. PoCL can bind its
workers, the first to the first core and so on. It reads the variable for that when it is loaded, which is when the process
lists platforms for the first time.

Intel's runtime binds its workers by itself. It computes in the thread that waits as well, which seat.py keeps off their
cores; the runtime's own setting would bind that thread for good, and all threads that it starts.
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
"""How users ask for fewer workers than there are cores; of two such processes, all workers would share the first cores."""
_LOADED_FILES = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class Placement:
    """Whether PoCL binds its workers to cores, and why, for `doctor`."""

    bound: bool
    reason: str

    def __str__(self) -> str:
        return f"{'one to a core' if self.bound else 'on any core'}, {self.reason}"


def decide() -> Placement:
    """Whether workers are to be bound: where that is safe, unless the user has set POCL_AFFINITY.

    POCL_AFFINITY=0 leaves them to the operating system, which suits machines whose cores other programs keep busy.
    """
    given = os.environ.get(_VARIABLE)
    if given is not None:
        return Placement(given.startswith("1"), f"as {_VARIABLE}={given} says")
    if sys.platform != "linux":
        return Placement(False, "as PoCL binds threads on Linux only")
    if env.builds_only():
        # Workers compile, too, and helpers compile beside the workers of the process that started them.
        return Placement(False, "as this process only builds kernels")
    fewer = next((v for v in _FEWER_THREADS if os.environ.get(v)), None)
    if fewer is not None:
        return Placement(False, f"as {fewer} is set")
    # PoCL counts cores from 0, and some versions abort the process where they may not use one of them.
    if os.sched_getaffinity(0) != set(range(os.cpu_count() or 0)):
        return Placement(False, "as this process may not use all cores")
    return Placement(True, f"unless {_VARIABLE}=0")


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """List platforms within this context. Processes that this one starts do not inherit the setting: they decide anew."""
    if _VARIABLE in os.environ or not decide().bound or _pocl_is_loaded():
        yield
        return
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        del os.environ[_VARIABLE]


def _pocl_is_loaded() -> bool:
    """Whether it is too late, and changing the environment beside PoCL's threads a needless risk."""
    try:
        return "libpocl" in _LOADED_FILES.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
