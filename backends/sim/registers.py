"""Memory-mapped registers: all communication between driver and device, except commands.

They are one page of a real `mmap`. Every register is a 64-bit little-endian number. The page begins with the registers
of the device; a block for each queue follows.

    0x000  DEVICE_ID          b"POLYHAL1"
    0x008  STATUS             see `Status`
    0x010  FAULT_ADDRESS      address of a page fault
    0x018  FAULT_COMMAND      sequence number of the command that halted the device
    0x020  COMPLETED          sequence number of the last completed command
    0x028  INTERRUPTS         interrupts raised so far
    0x100 + 0x40 * queue
        + 0x00  RING_BASE     host address of the ring buffer; 0: unused queue
        + 0x08  RING_SIZE     capacity in packets
        + 0x10  DOORBELL      packets written so far: the driver's write index
        + 0x18  READ_INDEX    packets fetched so far: the device's
"""

from __future__ import annotations

import enum
import mmap
import struct

_PAGE = 4096
_FIRST_QUEUE = 0x100
_QUEUE_BLOCK = 0x40
MAX_QUEUES = (_PAGE - _FIRST_QUEUE) // _QUEUE_BLOCK
DEVICE_ID = int.from_bytes(b"POLYHAL1", "little")
_WORD = struct.Struct("<Q")


class Register(enum.IntEnum):
    """Offsets of the device's registers."""

    DEVICE_ID = 0x00
    STATUS = 0x08
    FAULT_ADDRESS = 0x10
    FAULT_COMMAND = 0x18
    COMPLETED = 0x20
    INTERRUPTS = 0x28


class QueueRegister(enum.IntEnum):
    """Offsets in the block of a queue."""

    RING_BASE = 0x00
    RING_SIZE = 0x08
    DOORBELL = 0x10
    READ_INDEX = 0x18


class Status(enum.IntEnum):
    """Values of the STATUS register."""

    IDLE = 0
    BUSY = 1
    HALTED = 2
    """Fatal fault; the device executes no further commands."""


class Registers:
    """The page of registers of one device."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _PAGE)
        self.write(Register.DEVICE_ID, DEVICE_ID)

    def read(self, offset: int) -> int:
        """Load the register at an offset."""
        value: int = _WORD.unpack_from(self._page, offset)[0]
        return value

    def write(self, offset: int, value: int) -> None:
        """Store to the register at an offset."""
        _WORD.pack_into(self._page, offset, value)

    def dump(self) -> str:
        """Format every register in use, one per line."""
        lines = [f"{r:#05x} {r.name:<14} {self.read(r):#x}" for r in Register]
        lines[1] = f"{Register.STATUS:#05x} STATUS         {Status(self.read(Register.STATUS)).name}"
        for queue in range(MAX_QUEUES):
            if self.read(queue_register(queue, QueueRegister.RING_BASE)):
                for register in QueueRegister:
                    offset = queue_register(queue, register)
                    lines.append(f"{offset:#05x} queue {queue} {register.name:<10} {self.read(offset):#x}")
        return "\n".join(lines)


def queue_register(queue: int, register: QueueRegister) -> int:
    """Return the offset of a register of a queue."""
    return _FIRST_QUEUE + _QUEUE_BLOCK * queue + register
