"""The host side of a queue: its ring buffer, and the counts of written, announced and completed packets."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from polyhal.backends.sim.events import SimEvent
from polyhal.backends.sim.gpu import SimulatedGPU
from polyhal.backends.sim.ring import RingBuffer

RING_PACKETS = 1024


class HostQueue:
    """The host side of a queue."""

    def __init__(self, gpu: SimulatedGPU) -> None:
        self.ring = RingBuffer(RING_PACKETS)
        self.number = gpu.attach_queue(self.ring)
        self.written = 0
        """Number of packets written so far."""
        self.submitted_ns = 0
        """Host time of the last submission."""
        self.rung = 0
        """Number of packets announced by the doorbell."""
        self.waited = 0
        """Number of packets known to be complete."""
        self.in_batch = 0
        """Number of packets in the current batch."""
        self.batches: deque[SimEvent] = deque()
        """End events of batches in flight."""
        self.pinned: deque[PinnedUntil] = deque()
        """Host memory pinned until packets of this queue complete, in submission order. Other queues may complete earlier."""
        self.awaited: list[SimEvent] = []
        """Events that the next command waits for."""

    def dump(self, count: int = 16) -> str:
        """Format the last packets that were written, one per line."""
        return self.ring.dump(max(self.written - count, 0), self.written)


class PinnedUntil(NamedTuple):
    """Host memory in use by the device until a packet is done."""

    position: int
    """Number of packets of the queue up to that packet."""
    address: int
    """Address of pinned host memory; 0 for none."""
    staged: int
    """Staged bytes of the packet."""
    event: SimEvent | None


class SelectedQueue(threading.local):
    """Queue of a thread; None for the device's default queue."""

    queue: HostQueue | None = None
