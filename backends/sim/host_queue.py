"""The host's end of a queue: its ring buffer, and how far it is written, announced and done."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from polyhal.backends.sim.events import SimEvent
from polyhal.backends.sim.gpu import SimulatedGPU
from polyhal.backends.sim.ring import RingBuffer

RING_PACKETS = 1024


class HostQueue:
    """The host's end of a queue."""

    def __init__(self, gpu: SimulatedGPU) -> None:
        self.ring = RingBuffer(RING_PACKETS)
        self.number = gpu.attach_queue(self.ring)
        self.written = 0
        """Packets so far."""
        self.submitted_ns = 0
        """When the last one was written."""
        self.rung = 0
        """Packets of which the device knows."""
        self.waited = 0
        """Packets of which the host knows that they are done."""
        self.in_batch = 0
        """Packets since the end of the last batch."""
        self.batches: deque[SimEvent] = deque()
        """The ends of batches that the host has not waited for."""
        self.pinned: deque[PinnedUntil] = deque()
        """What the device needs until packets of this queue are done, in their order. Those of other queues may end before."""
        self.awaited: list[SimEvent] = []
        """Events for which the next command waits."""

    def dump(self, count: int = 16) -> str:
        """Print the last packets that were written, one in a line."""
        return self.ring.dump(max(self.written - count, 0), self.written)


class PinnedUntil(NamedTuple):
    """Something that the device needs until a packet is done."""

    position: int
    """Packets of the queue up to that one."""
    address: int
    """Of host memory; 0 for none."""
    staged: int
    """Bytes that were staged for it."""
    event: SimEvent | None


class SelectedQueue(threading.local):
    """The queue of a thread; None for the device's own."""

    queue: HostQueue | None = None
