"""An engine whose ranks are threads of the test's process: the shortest and fastest engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.distributed.mailbox import Mailbox, MailboxGroup, Tag
from polyhal.hal.collectives.process_group import ProcessGroup


class ThreadGroup(MailboxGroup):
    """The group of a rank that is a thread."""

    local_rank = 0
    local_size = 1

    def __init__(self, rank: int, boxes: list[Mailbox]) -> None:
        super().__init__(rank, len(boxes), boxes[rank])
        self.boxes = boxes

    def _deliver(self, to: int, tag: Tag, array: np.ndarray) -> None:
        self.boxes[to].put(self.rank, tag, array.copy())

    def abort(self, reason: str) -> None:
        for box in self.boxes:
            box.fail(f"rank {self.rank} {reason}")

    def close(self) -> None:
        """No-op: threads end by themselves."""


def on_threads(size: int, program: Callable[[ProcessGroup], Any]) -> list[Any]:
    """Run a program on every rank. Returns the results, or the exceptions."""
    boxes = [Mailbox() for _ in range(size)]
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = program(ThreadGroup(rank, boxes))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results
