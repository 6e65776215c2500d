"""Process groups over message delivery: every rank has a mailbox, into which the other ranks put arrays."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod

import numpy as np

from polyhal.distributed.movements import MovingGroup, Parts, Wait
from polyhal.hal.collectives.process_group import ProcessGroupError
from polyhal.hal.core.settings import env
from polyhal.hal.errors import message

Tag = tuple[str, int]
"""Kind of a message, and its sequence number within the kind: equal on all ranks."""


class Mailbox:
    """Arrays that have arrived for a rank, by sender and tag. Thread-safe."""

    def __init__(self) -> None:
        self._arrived: dict[tuple[int, Tag], np.ndarray] = {}
        self._changed = threading.Condition()
        self._failure = ""

    def put(self, source: int, tag: Tag, array: np.ndarray) -> None:
        """Deliver a vector of bytes from a rank."""
        with self._changed:
            self._arrived[source, tag] = array
            self._changed.notify_all()

    def fail(self, reason: str) -> None:
        """Raise in all calls of `take`, waiting and later ones: the job ends."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def take(self, source: int, tag: Tag, operation: str) -> np.ndarray:
        """Wait for the bytes from a rank. Raises ProcessGroupError if the job ends, or at the timeout."""
        limit = env.collective_timeout()
        end = time.monotonic() + limit if limit else None
        with self._changed:
            while (source, tag) not in self._arrived:
                if self._failure:
                    raise ProcessGroupError(
                        message(operation, self._failure, fix="all ranks end; resume from the last checkpoint")
                    )
                if not self._changed.wait(None if end is None else end - time.monotonic()):
                    raise ProcessGroupError(
                        message(
                            operation,
                            f"nothing came from rank {source} within {limit:g} s",
                            expected="the same calls in the same order on all ranks",
                            fix="POLYHAL_COLLECTIVE_TIMEOUT raises the limit",
                        )
                    )
            return self._arrived.pop((source, tag))


class MailboxGroup(MovingGroup):
    """Collectives of a rank with a mailbox. Engines define `_deliver`."""

    def __init__(self, rank: int, size: int, mailbox: Mailbox) -> None:
        super().__init__()
        self.rank, self.size = rank, size
        self._mailbox = mailbox
        self._moves = 0
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}

    @abstractmethod
    def _deliver(self, to: int, tag: Tag, array: np.ndarray) -> None:
        """Put bytes into another rank's mailbox, without waiting for the receipt. The caller may change them later."""

    def _deliver_to_all(self, tag: Tag, array: np.ndarray) -> None:
        """Put the same bytes into the mailboxes of all other ranks."""
        for to in self._others():
            self._deliver(to, tag, array)

    def _others(self) -> list[int]:
        """Return the other ranks, beginning with the next one, so that the ranks' first messages have different targets."""
        return [(self.rank + i) % self.size for i in range(1, self.size)]

    def _start_all_to_all(self, source: np.ndarray, outgoing: Parts, target: np.ndarray, incoming: Parts) -> Wait:
        tag = self._next()
        for to in self._others():
            size, start = outgoing[0][to], outgoing[1][to]
            if size:
                self._deliver(to, tag, source[start : start + size])
        size, start, begin = incoming[0][self.rank], outgoing[1][self.rank], incoming[1][self.rank]
        target[begin : begin + size] = source[start : start + size]
        return lambda: self._collect(tag, target, incoming)

    def _start_all_gather(self, source: np.ndarray | None, target: np.ndarray, incoming: Parts) -> Wait:
        tag = self._next()
        size, start = incoming[0][self.rank], incoming[1][self.rank]
        own = target[start : start + size]
        if source is not None:
            own[:] = source
        if size:
            self._deliver_to_all(tag, own)
        return lambda: self._collect(tag, target, incoming)

    def _start_broadcast(self, array: np.ndarray, root: int) -> Wait:
        tag = self._next()
        if self.rank == root:
            self._deliver_to_all(tag, array)
            return lambda: None
        return lambda: self._fill(array, root, tag)

    def _start_send(self, array: np.ndarray, to: int) -> Wait:
        self._sent[to] = self._sent.get(to, 0) + 1
        self._deliver(to, ("message", self._sent[to]), array)
        return lambda: None

    def _start_receive(self, array: np.ndarray, source: int) -> Wait:
        self._received[source] = self._received.get(source, 0) + 1
        tag = ("message", self._received[source])
        return lambda: self._fill(array, source, tag)

    def _next(self) -> Tag:
        self._moves += 1
        return "movement", self._moves

    def _collect(self, tag: Tag, target: np.ndarray, incoming: Parts) -> None:
        for source in self._others():
            size, start = incoming[0][source], incoming[1][source]
            if size:
                self._fill(target[start : start + size], source, tag)

    def _fill(self, array: np.ndarray, source: int, tag: Tag) -> None:
        arrived = self._mailbox.take(source, tag, self._operation)
        if arrived.size != array.size:
            raise ProcessGroupError(
                message(
                    self._operation,
                    f"rank {source} sent {arrived.size} bytes to rank {self.rank}",
                    expected=f"{array.size}: arrays of the same length and dtype on all ranks",
                )
            )
        array[:] = arrived
