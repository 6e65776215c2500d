"""Which case is running, on the disk, so that the next run knows what took the process with it.

Drivers do end processes: a compiler that crashes, a kernel that hangs until somebody kills it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from polyhal.hal.device import Device
from polyhal.hal.discovery.fingerprint import identity, place
from polyhal.hal.settings import env

_FRESH = 30.0
"""Seconds without a new case after which a run counts as dead, where processes cannot be asked for."""


class Journal:
    """The journal of one device. While entered, it names the case that runs; after an orderly end it is gone."""

    def __init__(self, device: Device) -> None:
        self._path = env.cache_dir() / "quarantine" / f"{place(device)}.running"
        self._key = identity(device).key
        self._writable = True

    def left(self) -> str:
        """The case during which an earlier run ended, under this driver and these versions; empty if none did."""
        try:
            key, process, case = self._path.read_text(encoding="utf-8").splitlines()
            alive = _alive(int(process), self._path)
        except (OSError, ValueError):  # none there, or torn by the very crash
            return ""
        return case if key == self._key and not alive else ""

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:  # a run without a journal is better than none
            self._writable = False
        return self

    def running(self, case: str) -> None:
        """Say that `case` begins."""
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
    if os.name != "posix":  # elsewhere asking for a process by os.kill ends it
        return time.time() - path.stat().st_mtime < _FRESH
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
