"""Prebuilding: several processes compile programs at once, because drivers compile one at a time within a process.

All processes run the same work. The first process to reach a program claims it, builds it and runs its launches; in
other processes its launches are no-ops. So the work is balanced without a plan.

`python -m polyhal.hal.core.kernels.prebuild DEVICE FOLDER` is a helper of a process that waits for programs (see
`background_build`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from polyhal.hal.core.kernels.call_log import KernelCall, KernelCallLog, typical_calls
from polyhal.hal.core.kernels.library import HasKernels, KernelLibrary
from polyhal.hal.core.settings import atomic
from polyhal.hal.errors import PolyhalError, UnsupportedOpError, message

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_DONE = ".done"
_ANNOUNCED = "announced-{}.jsonl"
_POLL = 0.01
"""Seconds between two checks whether calls have been announced."""
_FAILURES = (PolyhalError, KeyError, TypeError, ValueError, AttributeError)
"""Errors of calls of another version of Polyhal, and of calls that fail here."""
_IDLE = 15.0
"""Seconds without a request after which a helper ends; longer than the build of any program, and than the import of PyTorch's
compiler, which PyTorch's optimizers load between a model and its first step."""


class BuildClaims:
    """Claims of one process, in a folder shared by all processes. Usable as a `KernelLibrary.build_filter`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._claimed: set[str] = set()
        self._unfinished: set[str] = set()

    def __call__(self, kernel: str, digest: str) -> bool:
        """Claim a program. Returns whether this process owns it. Raises OSError if the folder is not usable."""
        if digest in self._claimed:
            return True
        try:
            self._create(digest)
        except FileExistsError:
            return False
        self._claimed.add(digest)
        self._unfinished.add(digest)
        return True

    def finish(self) -> None:
        """Mark all programs claimed so far as ready for other processes."""
        for digest in self._unfinished:
            self._create(digest + _DONE)
        self._unfinished.clear()

    def is_claimed_elsewhere(self, digest: str) -> bool:
        """Return whether another process has claimed a program."""
        return digest not in self._claimed and (self._folder / digest).exists()

    def is_done(self, digest: str) -> bool:
        """Return whether another process has finished a program."""
        return (self._folder / (digest + _DONE)).exists()

    def announce(self, number: int, calls: Iterable[KernelCall]) -> None:
        """Store calls for other processes. Raises OSError."""
        lines = []
        for call in calls:
            with contextlib.suppress(ValueError):  # its parameters have no plain form
                lines.append(json.dumps(call.to_json(), allow_nan=False))
        with atomic.replacing(self._folder / _ANNOUNCED.format(number), durable=False) as file:
            file.write("\n".join(dict.fromkeys(lines)).encode())

    def announced(self, number: int) -> list[KernelCall] | None:
        """Return the calls that another process has stored under a number, or None."""
        try:
            text = (self._folder / _ANNOUNCED.format(number)).read_text(encoding="utf-8")
        except OSError:
            return None
        return [KernelCall.from_json(json.loads(line)) for line in text.splitlines()]

    def _create(self, name: str) -> None:
        os.close(os.open(self._folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def library(device: Device) -> KernelLibrary:
    """Return the kernel library of a device. Raises UnsupportedOpError if its backend has none."""
    if isinstance(device.backend, HasKernels):
        return device.backend.kernels
    raise UnsupportedOpError(
        message(
            None,
            "this backend has no kernel files",
            expected="a device such as opencl",
            fix="`polyhal devices` lists all devices",
            device=device,
        )
    )


def help_out(device: Device, folder: Path, *, stay: bool = False) -> None:
    """Build the programs of typical calls, then of the device's kernel-call log, each from the last call to the first.

    Calls that the process that waits announces come before both. With `stay`, wait for such calls in the end.
    """
    kernels, claims = library(device), BuildClaims(folder)
    announced = _Announced(claims)
    others = itertools.chain(_typical(device, claims), reversed(KernelCallLog(device.info).calls()))
    while True:
        call = announced.next() or next(others, None)
        if call is None:
            if not stay:
                return
            time.sleep(_POLL)
            continue
        kernels.build_filter = claims
        with contextlib.suppress(*_FAILURES):
            # A call of another version, or a failing one: the process that needs it raises the error.
            call.run(device, launch=not kernels.ready_when_built)
        claims.finish()


class _Announced:
    """The calls that the process that waits has announced, from the last to the first."""

    def __init__(self, claims: BuildClaims) -> None:
        self._claims = claims
        self._calls: list[KernelCall] = []
        self._files = 0

    def next(self) -> KernelCall | None:
        """Return the next call to build, or None."""
        while (calls := self._claims.announced(self._files)) is not None:
            self._files += 1
            self._calls = calls  # the process has finished earlier ones
        return self._calls.pop() if self._calls else None


def _typical(device: Device, claims: BuildClaims) -> Iterator[KernelCall]:
    """Yield the calls of the typical program that has most programs in common with the process that waits, then the others.

    Before that process has claimed any, yield those that all typical programs need.
    """
    typical = [[(call, _digests(device, call)) for call in calls] for calls in typical_calls()]
    needed = [set[str]().union(*(digests for _, digests in calls)) for calls in typical]
    shared, done = set.intersection(*needed), set[str]()
    for call, digests in reversed(typical[-1]):
        if any(map(claims.is_claimed_elsewhere, set.union(*needed))):
            break
        if digests & shared:
            done |= digests
            yield call
    while left := [(calls, programs) for calls, programs in zip(typical, needed, strict=True) if calls]:
        calls, _ = max(left, key=lambda pair: sum(map(claims.is_claimed_elsewhere, pair[1])))
        call, digests = calls.pop()
        if not digests or digests - done:
            done |= digests
            yield call


def _digests(device: Device, call: KernelCall) -> set[str]:
    """Return the programs of a call, without building them; none if the call fails."""
    found: set[str] = set()

    def note(kernel: str, digest: str) -> bool:
        found.add(digest)
        return False

    library(device).build_filter = note
    with contextlib.suppress(*_FAILURES):
        call.run(device, launch=False)
    return found


def _end_with_the_caller() -> None:
    """End this process when its parent has ended, or has not requested a program for some seconds.

    The parent holds the other end of standard input and writes to it at each request.
    """
    last_request = time.monotonic()

    def listen() -> None:
        nonlocal last_request
        while os.read(sys.stdin.fileno(), 4096):
            last_request = time.monotonic()
        os._exit(0)

    def watch() -> None:
        while time.monotonic() - last_request < _IDLE:
            time.sleep(_IDLE / 4)
        os._exit(0)

    for task in (listen, watch):
        threading.Thread(target=task, daemon=True).start()


def main(name: str, folder: str) -> int:
    """Run a helper of the process that shares the folder. Returns the exit code."""
    from polyhal.hal.device import Device

    _end_with_the_caller()
    try:
        help_out(Device(name), Path(folder), stay=True)
    except (PolyhalError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
