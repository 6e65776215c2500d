"""Commands as packets of 64 bytes, little-endian, similar to the packets of AMD's architected queueing language (HSA).

offset  bytes  all packets
  0       1    type: see `PacketType`
  1       1    flags: 1 raise an interrupt when done
  2       2    reserved, 0
  4       4    completion signal, 0 for none
  8       8    sequence number: counts the commands of a device from 1
 16       8    host time of submission in nanoseconds

               DISPATCH: run a kernel
 24       8    kernel object
 32       8    host address of the kernel arguments
 40       4    number of arguments

               COPY: a transfer by a DMA engine
 24       8    source address
 32       8    destination address
 40       8    bytes
 48       4    CRC-32 of the bytes, if the driver has computed it
 52       1    direction: see `CopyDirection`
 56       4    the other device of the machine, by number

               WAIT: let the queue wait for another one
 24       4    signal
 28       4    whose signal: the device of the machine by number plus 1, 0 for this one

               BARRIER: all earlier packets of this queue are done (no fields)

               INDIRECT: execute an array of packets in host memory
 24       8    host address of the packets
 32       4    number of packets
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

import numpy as np

PACKET_BYTES = 64
_HEADER = struct.Struct("<BBHIQQ")
_DISPATCH = struct.Struct("<BBHIQQQQI20x")
_COPY = struct.Struct("<BBHIQQQQQIB3xI4x")
_WAIT = struct.Struct("<BBHIQQII32x")
_BARRIER = struct.Struct("<BBHIQQ40x")
_INDIRECT = struct.Struct("<BBHIQQQI28x")
DISPATCH_ARRAY = np.dtype(
    {
        "names": ["sequence", "submitted_ns", "arguments"],
        "formats": ["<u8", "<u8", "<u8"],
        "offsets": [8, 16, 32],
        "itemsize": PACKET_BYTES,
    }
)
"""Layout of dispatch packets, to patch those of a command buffer at once."""
INTERRUPT = 1
"""Flag that requests an interrupt."""


class PacketType(enum.IntEnum):
    """The first byte of a packet. Memory full of zeros holds no valid packet."""

    DISPATCH = 1
    COPY = 2
    WAIT = 3
    BARRIER = 4
    INDIRECT = 5


class CopyDirection(enum.IntEnum):
    """Source and destination memories of a copy."""

    HOST_TO_DEVICE = 0
    DEVICE_TO_HOST = 1
    DEVICE_TO_DEVICE = 2
    """Within the memory of one device."""
    DEVICE_TO_PEER = 3
    """To another device of the machine."""


class Header(NamedTuple):
    """Fields common to all packets."""

    sequence: int
    submitted_ns: int
    signal: int = 0
    flags: int = 0


class Dispatch(NamedTuple):
    """Run a kernel."""

    header: Header
    kernel: int
    arguments: int
    """Address."""
    argument_count: int

    def encode(self) -> bytes:
        """Return the packet's bytes."""
        h = self.header
        return _DISPATCH.pack(
            PacketType.DISPATCH,
            h.flags,
            0,
            h.signal,
            h.sequence,
            h.submitted_ns,
            self.kernel,
            self.arguments,
            self.argument_count,
        )


class Copy(NamedTuple):
    """Move bytes by DMA."""

    header: Header
    source: int
    destination: int
    nbytes: int
    crc32: int
    direction: CopyDirection
    peer: int = 0
    """Number of the other device in the machine."""

    def encode(self) -> bytes:
        """Return the packet's bytes."""
        h, fields = self.header, self[1:]
        return _COPY.pack(PacketType.COPY, h.flags, 0, h.signal, h.sequence, h.submitted_ns, *fields)


class Wait(NamedTuple):
    """Wait for a signal of another queue, or of another device of the machine."""

    header: Header
    awaited: int
    owner: int = 0
    """Number plus 1 of the device that completes the signal; 0 for this device."""

    def encode(self) -> bytes:
        """Return the packet's bytes."""
        h = self.header
        return _WAIT.pack(PacketType.WAIT, h.flags, 0, h.signal, h.sequence, h.submitted_ns, self.awaited, self.owner)


class Barrier(NamedTuple):
    """Complete after all earlier packets of the queue."""

    header: Header

    def encode(self) -> bytes:
        """Return the packet's bytes."""
        h = self.header
        return _BARRIER.pack(PacketType.BARRIER, h.flags, 0, h.signal, h.sequence, h.submitted_ns)


class Indirect(NamedTuple):
    """Execute an array of packets in host memory."""

    header: Header
    address: int
    packet_count: int

    def encode(self) -> bytes:
        """Return the packet's bytes."""
        h = self.header
        return _INDIRECT.pack(
            PacketType.INDIRECT, h.flags, 0, h.signal, h.sequence, h.submitted_ns, self.address, self.packet_count
        )


Packet = Dispatch | Copy | Wait | Barrier | Indirect


class InvalidPacketError(ValueError):
    """Bytes that are not a valid packet."""


def decode(data: bytes | memoryview) -> Packet:
    """Decode a packet. Raises InvalidPacketError."""
    if len(data) != PACKET_BYTES:
        raise InvalidPacketError(f"a packet has {PACKET_BYTES} bytes, not {len(data)}")
    kind, flags, reserved, signal, sequence, submitted = _HEADER.unpack_from(data)
    header = Header(sequence, submitted, signal, flags)
    if reserved:
        raise InvalidPacketError(f"the reserved bytes of packet {sequence} hold {reserved:#x}")
    match kind:
        case PacketType.DISPATCH:
            return Dispatch(header, *_DISPATCH.unpack(data)[6:])
        case PacketType.COPY:
            source, destination, nbytes, crc32, direction, peer = _COPY.unpack(data)[6:]
            if direction not in CopyDirection.__members__.values():
                raise InvalidPacketError(f"copy {sequence} has the invalid direction {direction}")
            return Copy(header, source, destination, nbytes, crc32, CopyDirection(direction), peer)
        case PacketType.WAIT:
            return Wait(header, *_WAIT.unpack(data)[6:])
        case PacketType.BARRIER:
            return Barrier(header)
        case PacketType.INDIRECT:
            return Indirect(header, *_INDIRECT.unpack(data)[6:])
    raise InvalidPacketError(f"packet {sequence} has the unknown type {kind}")


def describe(packet: Packet) -> str:
    """Return a packet as one line of text."""
    header = packet.header
    text = f"#{header.sequence:<5} {header.submitted_ns / 1000:>12.3f} us  {describe_body(packet)}"
    text += f", completes signal {header.signal}" if header.signal else ""
    return text + (", interrupt" if header.flags & INTERRUPT else "")


def describe_body(packet: Packet) -> str:
    """Return kind and fields of a packet as text."""
    match packet:
        case Dispatch(_, kernel, arguments, count):
            return f"DISPATCH  kernel {kernel}, {count} arguments at {arguments:#x}"
        case Copy(_, source, destination, nbytes, crc32, direction, peer):
            what = direction.name.lower().replace("_", " ") + (
                f" {peer}" if direction is CopyDirection.DEVICE_TO_PEER else ""
            )
            checksum = f", CRC-32 {crc32:#010x}" if direction is CopyDirection.HOST_TO_DEVICE else ""
            return f"COPY      {nbytes} bytes {what}, {source:#x} -> {destination:#x}{checksum}"
        case Wait(_, awaited, owner):
            return f"WAIT      for signal {awaited}" + (f" of device {owner - 1}" if owner else "")
        case Barrier():
            return "BARRIER"
        case Indirect(_, address, count):
            return f"INDIRECT  {count} packets at {address:#x}"
