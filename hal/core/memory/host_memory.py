"""Limits of host memory, so that a device that computes in it raises an error before the system runs out of memory.

Linux overcommits memory and kills a process when memory runs out, without a warning. The available memory of the
machine and of the process's control groups (containers) is therefore read before large allocations.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from polyhal.hal.errors import OutOfMemoryError, message

_UNCHECKED = 64 * 2**20
"""Bytes that may be allocated between two readings, which take about 0.1 ms each."""
_SPARED = 0.02
"""Fraction of the memory reserved for the rest of the program and for the system."""
_PAGE = 4096 if os.name == "nt" else os.sysconf("SC_PAGE_SIZE")
_MOST_SPARED = 512 * 2**20


class HostMemory:
    """Memory of this machine that the process may use."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Read the kernel's file systems below `root`, for tests."""
        self._root = root

    def total_and_available(self) -> tuple[int, int] | None:
        """Return total and available bytes; None on systems that do not report them.

        File caches count as available.
        """
        limits = [*self._machine(), *self._control_groups()]
        return min(limits, key=lambda limit: limit[1]) if limits else None

    def resident(self) -> int:
        """Return the resident bytes of this process; 0 on systems that do not report them."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int((self._root / "proc/self/statm").read_text("ascii").split()[1]) * _PAGE
        return 0

    def untouched(self) -> int:
        """Return the writable bytes of this process that are not resident; 0 on systems that do not report them."""
        total, counts = 0, False
        with contextlib.suppress(OSError, ValueError):
            for line in (self._root / "proc/self/smaps").read_text("utf-8", "replace").splitlines():
                words = line.split()
                if words[0].endswith(":"):
                    sign = {"Size:": 1, "Rss:": -1, "Swap:": -1}.get(words[0], 0)
                    total += sign * counts * int(words[1]) * 1024 if sign else 0
                else:  # the first line of a mapping
                    counts = words[1].startswith("rw")
        return max(0, total)

    def _machine(self) -> Iterator[tuple[int, int]]:
        with contextlib.suppress(OSError, KeyError, ValueError):
            facts = _table((self._root / "proc/meminfo").read_text("ascii"))
            yield facts["MemTotal:"] * 1024, facts["MemAvailable:"] * 1024

    def _control_groups(self) -> Iterator[tuple[int, int]]:
        with contextlib.suppress(OSError):
            for line in (self._root / "proc/self/cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                if not controllers:
                    names = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
                elif "memory" in controllers.split(","):
                    names = (
                        "sys/fs/cgroup/memory",
                        "memory.limit_in_bytes",
                        "memory.usage_in_bytes",
                        "total_inactive_file",
                    )
                else:
                    continue
                mount, maximum, usage, reclaimable = names
                # Inside a container the path may be the host's, while the container's own group is mounted as the root.
                for folder in (PurePosixPath(path), *PurePosixPath(path).parents):
                    yield from self._group(self._root / mount / str(folder).lstrip("/"), maximum, usage, reclaimable)

    @staticmethod
    def _group(folder: Path, maximum: str, usage: str, reclaimable: str) -> Iterator[tuple[int, int]]:
        # A group without a limit reports "max", or a number beyond any memory.
        with contextlib.suppress(OSError, ValueError):
            limit, used = (int((folder / name).read_text("ascii")) for name in (maximum, usage))
            caches = _table((folder / "memory.stat").read_text("ascii")).get(reclaimable, 0)
            yield limit, max(0, limit - used + caches)


def check_host_memory(op: str, nbytes: int) -> None:
    """Raise OutOfMemoryError if the system cannot spare `nbytes` for work on the host."""
    if nbytes < _UNCHECKED:
        return
    spare = HostMemoryGuard(HostMemory()).spare()
    if nbytes > (sys.maxsize if spare is None else spare):
        problem = f"it needs {nbytes / 2**20:.2f} MiB of the host's memory, and the system can spare"
        raise OutOfMemoryError(message(op, f"{problem} {(spare or 0) / 2**20:.2f} MiB", fix="make fewer elements"))


class HostMemoryGuard:
    """Rejects allocations that exceed the system's available memory. One per memory pool."""

    def __init__(self, memory: HostMemory) -> None:
        self._memory = memory
        self._unchecked = 0
        """Bytes allocated since the last reading."""
        self._promised = 0
        """Allocated bytes that may not have been written, so that the system still counts them as available.

        This is an upper bound, from the growth of the process. `HostMemory.untouched` is exact, but slow.
        """
        self._resident = 0
        """Resident bytes of the process at the last reading."""

    def admit(self, nbytes: int) -> None:
        """Raise OutOfMemoryError if `nbytes` are more than the system can spare."""
        self._unchecked += nbytes
        if self._unchecked < _UNCHECKED:
            return
        asked, self._unchecked = self._unchecked, 0
        spare = self.spare()
        resident = self._memory.resident()
        written = max(0, resident - self._resident)
        before, self._resident = self._resident, resident
        self._promised = max(0, self._promised - written) if before else 0
        if spare is not None and nbytes + self._promised > spare >= nbytes:
            self._promised = min(self._promised, self._memory.untouched())
        if spare is not None and nbytes + self._promised > spare:
            problem = f"{nbytes} bytes requested, the system can spare {max(0, spare - self._promised)}"
            raise OutOfMemoryError(message(None, problem))
        self._promised += asked

    def forget(self, nbytes: int) -> None:
        """Subtract `nbytes` that were returned to the system from the promised bytes."""
        self._promised = max(0, self._promised - nbytes)

    def spare(self) -> int | None:
        """Return the bytes that the system can spare; None if it does not report them."""
        state = self._memory.total_and_available()
        if state is None:
            return None
        total, available = state
        return max(0, available - min(int(total * _SPARED), _MOST_SPARED))


def _table(text: str) -> dict[str, int]:
    """Return the numbers of a file with lines of a name and a number."""
    return {words[0]: int(words[1]) for words in map(str.split, text.splitlines()) if len(words) > 1}
