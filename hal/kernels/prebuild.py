"""Building programs in several processes at once: drivers build one program at a time within a process.

All processes run the same work. Whoever meets a program first claims it, builds it and runs its launches; the launches of
programs that another process has claimed do nothing. So the work is shared out evenly without a plan.

`python -m polyhal.hal.kernels.prebuild DEVICE FOLDER` is a helper of a process that needs programs now (see `ahead`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from polyhal.hal.errors import PolyhalError, UnsupportedOpError, message
from polyhal.hal.kernels.call_log import Record, typical
from polyhal.hal.kernels.library import HasKernels, KernelLibrary

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_DONE = ".done"
_IDLE = 8.0
"""Seconds without a request after which a helper takes its work for done: longer than any program takes to build."""


class Claims:
    """Claims of one process in a folder that all share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: set[str] = set()
        self._unfinished: set[str] = set()

    def __call__(self, kernel: str, digest: str) -> bool:
        """Whether the program is this process's. Raises OSError where the folder cannot be used."""
        if digest in self._own:
            return True
        try:
            self._make(digest)
        except FileExistsError:
            return False
        self._own.add(digest)
        self._unfinished.add(digest)
        return True

    def finish(self) -> None:
        """Tell the others that all that was claimed so far is ready."""
        for digest in self._unfinished:
            self._make(digest + _DONE)
        self._unfinished.clear()

    def is_done(self, digest: str) -> bool:
        """Whether another process has told so of a program."""
        return (self._folder / (digest + _DONE)).exists()

    def _make(self, name: str) -> None:
        os.close(os.open(self._folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def library(device: Device) -> KernelLibrary:
    """The kernels of a device. Raises UnsupportedOpError where its backend keeps none that can be seen."""
    if isinstance(device.backend, HasKernels):
        return device.backend.kernels
    raise UnsupportedOpError(
        message(
            None, "this backend has no kernel files", expected="a device such as opencl",
            fix="`polyhal devices` lists all devices", device=device,
        )
    )  # fmt: skip


def help_out(device: Device, folder: Path) -> None:
    """Build what typical calls need and those that the device was asked for before, from the last to the first."""
    kernels, claims = library(device), Claims(folder)
    kernels.claim = claims
    for call in reversed([*Record(device.info).calls(), *typical()]):
        try:
            call.run(device, launch=not kernels.ready_when_built)
        except (PolyhalError, KeyError, TypeError, ValueError, AttributeError):
            continue  # a call of another version, or one that fails: whoever needs it will be told
        claims.finish()


def _end_with_the_caller() -> None:
    """End this process when the one that started it is gone, or has asked for no program for some seconds.

    It holds the other end of our standard input and writes to it whenever it needs a program.
    """
    asked = time.monotonic()

    def listen() -> None:
        nonlocal asked
        while os.read(sys.stdin.fileno(), 4096):
            asked = time.monotonic()
        os._exit(0)

    def watch() -> None:
        while time.monotonic() - asked < _IDLE:
            time.sleep(_IDLE / 4)
        os._exit(0)

    for task in (listen, watch):
        threading.Thread(target=task, daemon=True).start()


def main(name: str, folder: str) -> int:
    """Help the process that shares the folder for as long as it needs programs. Returns the exit code."""
    from polyhal.hal.device import Device

    _end_with_the_caller()
    try:
        help_out(Device(name), Path(folder))
    except (PolyhalError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
