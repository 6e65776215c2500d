"""The hub of a job: every rank keeps a connection to it, and it notifies all ranks of the first loss.

The operating system closes the connections of a process that ends, however it ends, so that a killed rank is noticed at once;
TCP keepalive probes detect a machine that no longer answers. The hub runs in the launcher, or in rank 0 of a job that another
program started. Messages are lines of JSON.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from polyhal.hal.core.settings.processes import signal_text

PROBES = (2, 2, 3)
"""TCP keepalive: the first probe after 2 seconds, then every 2 seconds, given up after 3 failures."""
_LONGEST_LINE = 1 << 16
_FATAL = b"Fatal Python error: "
"""Prefix of a report of Python's faulthandler, which writes to the connection when a rank crashes."""
_PAUSE = 0.05
"""Seconds between attempts to accept ranks."""
HELLO = 20.0
"""Timeout in seconds for the first message of a connection, which contains its rank."""
_STRANGERS = 64
"""Maximum number of connections without a rank, in addition to one per rank. Further ones are closed."""
ANSWER = 3.0
"""Timeout in seconds of a rank's answer after another one has waited for too long."""


class LostRank(NamedTuple):
    """A rank that was lost before the end of the job."""

    rank: int
    name: str
    """Rank, process and machine, as text."""
    how: str
    """Cause of the loss, as the predicate of a sentence."""
    status: int | None
    """Exit status, if reported."""
    silent: bool = False
    """True if the connection ended without a message; then only the operating system can report the cause."""

    @property
    def text(self) -> str:
        """Rank and the cause, as a sentence without a full stop."""
        return f"{self.name} {self.how}"


class Hub:
    """Accepts connections of `size` ranks. Calls `on_loss` once, for the first lost rank."""

    def __init__(
        self, size: int, *, everywhere: bool = False, on_loss: Callable[[LostRank], None] | None = None
    ) -> None:
        """`everywhere` accepts ranks of other machines."""
        self.size = size
        self.token = secrets.token_hex(16)
        """Token in the first message of each rank: the port is open to all users of the machine."""
        self.loss: LostRank | None = None
        self.ended: dict[int, int] = {}
        """Exit status of each rank that has signed off."""
        self.notes: dict[str, Any] = {}
        """Notes of ranks for the launcher."""
        self._on_loss = on_loss
        self._closed = False
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._waiting: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._processes: dict[int, int] = {}
        """Process IDs of connected ranks on this machine."""
        self._answers = threading.Condition(self._lock)
        self._answered: set[int] = set()
        self._places = threading.BoundedSemaphore(size + _STRANGERS)
        """Slots for connections that are being served."""
        self._server = socket.create_server(("" if everywhere else "127.0.0.1", 0), backlog=size)
        self._host = own_address() if everywhere else "127.0.0.1"
        threading.Thread(target=self._accept, name="polyhal-hub", daemon=True).start()

    @property
    def address(self) -> str:
        """Host, port and token, as `Watch` expects them."""
        return f"{self._host}:{self._server.getsockname()[1]}:{self.token}"

    def tell(self, **content: Any) -> None:
        """Send a message to all ranks."""
        line = json.dumps(content).encode() + b"\n"
        with self._lock:
            connections = [*self._connections.values()]
        for connection in connections:
            with suppress(OSError):  # the connection's reader handles the failure
                connection.sendall(line)

    def missing(self) -> list[int]:
        """Return the ranks that have not connected yet."""
        with self._lock:
            return [r for r in range(self.size) if r not in self._names]

    def give_up(self, how: str) -> None:
        """Report the first rank that has not connected as lost."""
        missing = self.missing()
        if missing:
            self._lost(missing[0], how, None)

    def close(self) -> None:
        """Stop accepting connections."""
        self._closed = True
        with suppress(OSError):  # wakes the accepting thread on systems where `close` does not
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed, or a rank that disconnected before it was accepted
                time.sleep(_PAUSE)
                continue
            if not self._places.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="polyhal-hub-rank", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._serve_rank(connection)
        finally:
            self._places.release()

    def _serve_rank(self, connection: socket.socket) -> None:
        probe(connection)
        connection.settimeout(HELLO)
        lines = messages(connection)
        rank = self._register(connection, next(lines, {}))
        if rank is None:
            lines.close()
            connection.close()
            return
        for content in lines:
            self._handle(rank, content)
        with self._lock:
            self._processes.pop(rank, None)
        if rank not in self.ended:
            self._lost(rank, "was killed or crashed: its connection ended without a message", None, silent=True)

    def _register(self, connection: socket.socket, hello: Mapping[str, Any]) -> int | None:
        """Register a rank from its first message, and send it earlier losses. Returns None for an invalid rank."""
        rank = hello.get("rank")
        accepted = isinstance(hello.get("token"), str) and hmac.compare_digest(
            hello["token"].encode(), self.token.encode()
        )
        if not accepted or type(rank) is not int or not 0 <= rank < self.size:
            return None
        connection.settimeout(None)
        process, host = hello.get("process"), hello.get("host")
        with self._lock:
            if rank in self._names:
                return None
            self._connections[rank] = connection
            self._names[rank] = f"rank {rank} (process {process} on {host})"
            if host == socket.gethostname() and type(process) is int and process > 1:
                self._processes[rank] = process
            past: list[Mapping[str, Any]] = [{"ended": r} for r in self.ended]
            past += [{"lost": self.loss.rank, "text": self.loss.text}] if self.loss else []
        for known in past:
            with suppress(OSError):
                connection.sendall(json.dumps(known).encode() + b"\n")
        return rank

    def _handle(self, rank: int, content: Mapping[str, Any]) -> None:
        if "failed" in content:
            self._lost(rank, str(content["failed"]), content.get("status"))
        elif "fatal" in content:
            place = f", at {content['place']}" if content["place"] else ""
            self._lost(rank, f"was ended by {fatal_signal(str(content['fatal']))}{place}", None)
        elif "bye" in content:
            self._left(rank, content["bye"] if type(content["bye"]) is int else 1)
        elif "waits" in content:
            self._waits(rank, str(content["waits"]))
        elif "goes_on" in content:
            self._waiting.pop(rank, None)
        elif "timed_out" in content:
            self._find_silent(rank, str(content["timed_out"]), content.get("limit"))
        elif "answers" in content:
            with self._answers:
                self._answered.add(rank)
                self._answers.notify_all()
        else:
            self.notes.update(content)

    def _left(self, rank: int, status: int) -> None:
        with self._lock:
            self.ended[rank] = status
            over = len(self.ended) == self.size
        self.tell(ended=rank)
        if over:
            self.tell(over=True)

    def _waits(self, rank: int, operation: str) -> None:
        """Record that a rank waits. If all remaining ranks wait, they wait for ranks that have ended: a deadlock."""
        with self._lock:
            self._waiting[rank] = operation
            stuck = self.ended and len(self.ended) + len(self._waiting) == self.size
        if stuck:
            how = f"has ended, and rank {rank} waits for it in {operation}"
            self._lost(next(iter(self.ended)), f"{how}; expected the same calls in the same order on all ranks", None)

    def _find_silent(self, waiting: int, operation: str, limit: Any) -> None:
        """Query all ranks on a thread. A rank that does not answer causes the wait, and is killed if it is on this machine."""
        threading.Thread(
            target=self._ask_all, args=(waiting, f"rank {waiting} has waited {limit} s in {operation}"), daemon=True
        ).start()

    def _ask_all(self, waiting: int, complaint: str) -> None:
        def left() -> list[int]:
            return [r for r in range(self.size) if r not in self._answered and r not in self.ended and r != waiting]

        with self._answers:
            if self.loss is not None:
                return
            self._answered.clear()
        self.tell(answer=True)
        with self._answers:
            self._answers.wait_for(lambda: not left(), ANSWER)
            silent = left()
        if not silent:
            how = "has waited too long for the other ranks, which all answer"
            advice = (
                "expected the same calls in the same order on all ranks; POLYHAL_COLLECTIVE_TIMEOUT raises the limit"
            )
            self._lost(waiting, f"{how}: {complaint}; {advice}", None)
            return
        others = f", nor do the ranks {silent[1:]}" if silent[1:] else ""
        self._lost(silent[0], f"does not answer{others}: it is stopped or hangs in a call; {complaint}", None)
        with self._lock:
            processes = [self._processes.pop(r) for r in silent if r in self._processes]
        for process in processes:
            with suppress(OSError):
                os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))

    def _lost(self, rank: int, how: str, status: int | None, *, silent: bool = False) -> None:
        with self._lock:
            if self.loss is not None:
                return
            self.loss = LostRank(rank, self._names.get(rank, f"rank {rank}"), how, status, silent)
        self.tell(lost=rank, text=self.loss.text)
        if self._on_loss is not None:
            self._on_loss(self.loss)


def fatal_signal(name: str) -> str:
    """Return the description of a signal by the name that Python's faulthandler uses."""
    number = {
        "Segmentation fault": "SIGSEGV",
        "Aborted": "SIGABRT",
        "Bus error": "SIGBUS",
        "Floating point exception": "SIGFPE",
        "Floating-point exception": "SIGFPE",
        "Illegal instruction": "SIGILL",
    }.get(name)
    return signal_text(getattr(signal, number)) if number and hasattr(signal, number) else name


def probe(connection: socket.socket) -> None:
    """Enable keepalive probes, so that the operating system detects the loss of the remote machine."""
    idle, interval, count = PROBES
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ("TCP_KEEPIDLE", idle),
        ("TCP_KEEPALIVE", idle),  # the name on macOS
        ("TCP_KEEPINTVL", interval),
        ("TCP_KEEPCNT", count),
        ("TCP_USER_TIMEOUT", 1000 * (idle + interval * count)),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def messages(connection: socket.socket) -> Generator[Mapping[str, Any], None, None]:
    """Yield the messages that arrive, until the connection ends for any reason."""
    with connection, connection.makefile("rb") as file:
        while True:
            try:
                line = file.readline(_LONGEST_LINE)
            except OSError:
                return
            if not line.endswith(b"\n"):
                return
            if line.startswith(_FATAL):
                trace = file.read(_LONGEST_LINE).decode(errors="replace").splitlines()
                at = next((i for i, t in enumerate(trace) if t.startswith("Current thread")), len(trace))
                place = next((t.strip() for t in trace[at:] if t.startswith("  File ")), "")
                yield {"fatal": line.removeprefix(_FATAL).decode(errors="replace").strip(), "place": place}
                return
            try:
                content = json.loads(line)
            except (ValueError, RecursionError):
                return
            if not isinstance(content, dict):
                return
            yield content


def own_address() -> str:
    """Return an address of this machine that other machines can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probing:
        try:
            probing.connect(("10.255.255.255", 1))  # sends nothing: only selects the interface
            return str(probing.getsockname()[0])
        except OSError:
            return socket.gethostname()
