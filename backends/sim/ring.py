"""Ring buffers: carry commands from the driver to the device.

The driver writes packets one after the other and wraps around at the end; the device fetches them in the same order.
Both indices increase indefinitely from 0, and a packet's slot is its index modulo the size. The ring is full when the
two indices differ by its size, and empty when they are equal.
"""

from __future__ import annotations

import mmap

from polyhal.backends.sim.packets import PACKET_BYTES, Packet, decode, describe


class RingBuffer:
    """Packets in a real `mmap`, shared by driver and device."""

    def __init__(self, size: int) -> None:
        """Allocate a ring of `size` packets."""
        self.size = size
        self.memory = mmap.mmap(-1, size * PACKET_BYTES)

    def write(self, index: int, packet: bytes) -> None:
        """Store a packet in the slot of `index`."""
        start = index % self.size * PACKET_BYTES
        self.memory[start : start + PACKET_BYTES] = packet

    def read(self, index: int) -> Packet:
        """Decode the packet in the slot of `index`."""
        start = index % self.size * PACKET_BYTES
        return decode(self.memory[start : start + PACKET_BYTES])

    def dump(self, read: int, write: int) -> str:
        """Format the packets from index `read` to `write`, one per line."""
        return "\n".join(f"{i:>6}  {describe(self.read(i))}" for i in range(max(read, write - self.size), write))
