"""A rank's connection to the hub: receives the losses of other ranks, and reports how this one ends."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from polyhal.distributed.hub import ANSWER, messages, probe
from polyhal.hal.collectives.process_group import ProcessGroupError
from polyhal.hal.errors import message

GRACE = 5.0
"""Seconds in which a rank may end by itself after the loss of another."""
_LATE = 2.0
"""Seconds after which a waiting rank reports to the hub, if others have ended."""
LOST = 1
"""Exit status of ranks that end because another one is gone."""
_CONNECTING = 20.0


class Watch:
    """Watches the other ranks of a job on a thread. `address` is the address of a `Hub`.

    Raises ProcessGroupError if there is no hub.
    """

    def __init__(self, address: str, rank: int, *, hub_in_rank_0: bool = False) -> None:
        host, port, token = address.rsplit(":", 2)
        self.failure: str | None = None
        """Reason for the end of the job, if it ends."""
        self._ended = False
        """True if another rank has signed off."""
        self._waiting = False
        """True if the hub has been notified that this rank waits."""
        self.rank = rank
        self.status = 0
        """Exit status that `leave` reports."""
        self._leaving = False
        self._failed = False
        self._home = "rank 0" if hub_in_rank_0 else "the launcher"
        self._over = threading.Event()
        try:
            self._connection = socket.create_connection((host, int(port)), _CONNECTING)
        except OSError as error:
            raise ProcessGroupError(
                message(
                    "init",
                    f"rank {rank} on {socket.gethostname()} cannot reach {self._home} at {host}:{port}: {error}",
                    fix="let the machines of the job connect to each other",
                )
            ) from error
        self._connection.settimeout(None)
        probe(self._connection)
        self.note(token=token, rank=rank, process=os.getpid(), host=socket.gethostname())
        threading.Thread(target=self._listen, name="polyhal-watch", daemon=True).start()

    def check(self, operation: str) -> None:
        """Raise ProcessGroupError if the operation can no longer complete."""
        if self.failure is not None:
            raise ProcessGroupError(
                message(operation, self.failure, fix="all ranks end; resume from the last checkpoint")
            )

    def waits(self, operation: str, seconds: float) -> None:
        """Report to the hub that this rank waits, if others have ended: a deadlock if all remaining ranks wait."""
        if self._ended and not self._waiting and seconds > _LATE:
            self._waiting = True
            self.note(waits=operation)

    def timed_out(self, operation: str, limit: float) -> None:
        """Report to the hub that this rank has waited for too long, and wait for the name of the rank that is the cause."""
        self.note(timed_out=operation, limit=limit)
        self._over.wait(ANSWER + _LATE)

    def goes_on(self) -> None:
        """Report to the hub that this rank no longer waits. No-op unless a wait was reported."""
        if self._waiting:
            self._waiting = False
            self.note(goes_on=True)

    def report_crashes(self) -> None:
        """Make Python's faulthandler report a crash to the hub: nothing else can run in a process that crashes.

        No-op if the program has enabled the faulthandler for another file.
        """
        if not faulthandler.is_enabled():
            faulthandler.enable(self._connection.fileno())

    def note(self, **content: Any) -> None:
        """Send a message to the hub."""
        with suppress(OSError):  # the listening thread notices the loss of the hub
            self._connection.sendall(json.dumps(content).encode() + b"\n")

    def fail(self, text: str, status: int | None = None) -> None:
        """Report to all ranks that this one fails; `text` follows its name in a sentence."""
        if not self._leaving and not self._failed:
            self._failed = True
            self.note(failed=text, status=status)

    def leave(self) -> bool:
        """Sign off, and wait until all ranks have. Returns False if one of them is gone, or if this one has failed."""
        if self._failed:
            return False
        if not self._leaving:
            self._leaving = True
            self.note(bye=self.status)
        self._over.wait()
        return self.failure is None

    def _listen(self) -> None:
        over = False
        for content in messages(self._connection):
            if "ended" in content:
                self._ended = True
            elif "lost" in content:
                self._fail(str(content["text"]))
            elif "answer" in content:
                self.note(answers=True)
            elif "stop" in content:
                os.kill(os.getpid(), signal.SIGINT)
            elif "over" in content:
                over = True
                self._over.set()
        if not over:
            self._fail(f"{self._home} is gone")

    def _fail(self, text: str) -> None:
        if self.failure is not None:
            return
        self.failure = text
        self._over.set()
        # The main thread may be blocked, for instance in a call of MPI that never returns.
        timer = threading.Timer(GRACE, _exit)
        timer.daemon = True
        timer.start()


def _exit() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(LOST)
