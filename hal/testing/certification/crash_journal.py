"""Journal file with the running case, so that the next run can identify the case that ended the process.

Drivers can end processes: compilers crash, and hanging kernels force the user to kill them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from polyhal.hal.core.fingerprint import device_key, fingerprint
from polyhal.hal.core.settings import env, processes
from polyhal.hal.core.settings.trust import read_regular
from polyhal.hal.device import Device

_FRESH = 30.0
"""Seconds without a new case after which a run is considered dead, on systems that cannot query processes."""


class Journal:
    """Journal of one device. While entered, it records the running case; a regular exit deletes it."""

    def __init__(self, device: Device) -> None:
        self._path = env.cache_dir() / "quarantine" / f"{device_key(device)}.running"
        self._key = fingerprint(device).key
        self._writable = True

    def crashed(self) -> str:
        """Return the case in which an earlier run with this driver and these versions ended; empty if there is none."""
        try:
            key, process, case = read_regular(self._path).decode().splitlines()
            alive = _alive(int(process), self._path)
        except (OSError, ValueError):  # missing, or incomplete because of the crash
            return ""
        return case if key == self._key and not alive else ""

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:  # a run without a journal is better than no run
            self._writable = False
        return self

    def running(self, case: str) -> None:
        """Record that `case` starts."""
        if self._writable:
            try:
                self._path.write_text(f"{self._key}\n{os.getpid()}\n{case}\n", encoding="utf-8")
            except OSError:
                self._writable = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writable:
            self._path.unlink(missing_ok=True)


def _alive(process: int, path: Path) -> bool:
    if process == os.getpid():
        return False
    if os.name != "posix":  # on Windows os.kill would end the process
        return time.time() - path.stat().st_mtime < _FRESH
    return processes.is_running(process)
