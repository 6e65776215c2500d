"""Background builds: helper processes compile the kernels that a program will probably use next while it waits for its first.

A process that has to compile a program for the first time starts helpers; with an empty cache, already when it allocates
memory. They work through the typical calls of a first training step and then through the kernel-call log of the device,
from the last call to the first; the process itself proceeds from the other end. The first process to claim a program
builds it (see `prebuild`); others wait. Kernels of a captured step are all known before the first is built: they are
announced to the helpers, which build them before the others.

Helpers end with the process that started them, or when it has not requested a program for some
seconds. Without helpers, every program is built on demand: if no process can be started, on one core, or with
POLYHAL_BUILD_AHEAD=0.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polyhal.hal.core.kernels.prebuild import BuildClaims
from polyhal.hal.core.plugins.python_process import command, environment, has_python
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.file_lock import FileLock

if TYPE_CHECKING:
    from polyhal.hal.core.kernels.call_log import KernelCall

_MAX_HELPERS = 3
_POLL = 0.002
"""Seconds between two checks whether a helper has finished a program."""
_PATIENCE = 30.0
"""Timeout in seconds for a helper's claim, after which this process builds the program."""


class BackgroundBuilder:
    """The helpers of one process for one device."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._started = False
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._folder: str | None = None
        self._claims: BuildClaims | None = None
        self._lock: FileLock | None = None
        self._announced = 0

    @property
    def is_running(self) -> bool:
        """True if a helper is building programs, or waits for calls to be announced."""
        return self._claims is not None and any(h.poll() is None for h in self._helpers)

    def announce(self, calls: Sequence[KernelCall]) -> None:
        """Send the helpers calls that this process will build soon, in this order. They begin with the last one."""
        if self._claims is not None:
            self._notify()
            with contextlib.suppress(OSError):  # without the calls it only takes longer
                self._claims.announce(self._announced, calls)
            self._announced += 1

    def wait_for_turn(self, kernel: str, digest: str) -> None:
        """Block until this process should obtain a program: not at all, or until a helper has built it."""
        self.start()
        if self._claims is None:
            return
        self._notify()
        try:
            if self._claims(kernel, digest):
                return
        except OSError:
            return
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self.is_running:
            if self._claims.is_done(digest):
                return
            time.sleep(_POLL)

    def start(self) -> None:
        """Start the helpers if they have not been started: before the first request if there will certainly be one."""
        if not self._started:
            self._started = True
            with contextlib.suppress(OSError):  # without helpers it only takes longer
                self._start()

    def _notify(self) -> None:
        """Send the helpers a request. They end without requests for some seconds, or when the pipe breaks."""
        for helper in self._helpers:
            with contextlib.suppress(OSError, ValueError):  # it has ended
                assert helper.stdin is not None
                helper.stdin.write(b".")
                helper.stdin.flush()

    def _start(self) -> None:
        """Start helpers, unless another process has some, which would build the same programs. Raises OSError."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if cores < 2 or not has_python() or not self._take_lock():
            return
        atexit.register(self.stop)
        self._folder = tempfile.mkdtemp(prefix="polyhal-ahead-")
        for _ in range(min(cores - 1, _MAX_HELPERS)):
            self._helpers.append(
                subprocess.Popen(
                    command("polyhal.hal.core.kernels.prebuild", self._device, self._folder),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment(POLYHAL_BUILD_AHEAD="0", POLYHAL_BUILDS_ONLY="1", POLYHAL_MEASURE_TIMEOUT="0"),
                )
            )
        self._claims = BuildClaims(Path(self._folder))

    def _take_lock(self) -> bool:
        lock = FileLock(env.cache_dir() / "building-ahead.lock")
        lock.path.parent.mkdir(parents=True, exist_ok=True)
        if not lock.acquire():
            return False
        self._lock = lock
        return True

    def stop(self) -> None:
        """Stop the helpers and remove the shared folder."""
        for helper in self._helpers:
            if helper.poll() is None:
                helper.kill()
            with contextlib.suppress(OSError):
                assert helper.stdin is not None
                helper.stdin.close()
            helper.wait()
        self._helpers.clear()
        self._claims = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def background_builder(device: str) -> BackgroundBuilder | None:
    """Return the helpers for the device of that name; None if background builds are switched off."""
    return BackgroundBuilder(device) if env.build_ahead() else None
