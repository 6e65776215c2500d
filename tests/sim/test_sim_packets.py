"""Packets, registers, rings and kernel arguments: their bytes are as documented, and decoding undoes encoding."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhal.backends.sim.kernel_arguments import (
    ARGUMENT_BYTES,
    ArgumentKind,
    decode_arguments,
    encode_arguments,
    patch_argument,
)
from polyhal.backends.sim.packets import (
    INTERRUPT,
    PACKET_BYTES,
    Barrier,
    Copy,
    CopyDirection,
    Dispatch,
    Header,
    Indirect,
    InvalidPacketError,
    Packet,
    Wait,
    decode,
    describe,
)
from polyhal.backends.sim.registers import DEVICE_ID, QueueRegister, Register, Registers, Status, queue_register
from polyhal.backends.sim.ring import RingBuffer
from polyhal.hal import dtypes
from polyhal.hal.layout import Ref, contiguous

word, half = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
headers = st.builds(Header, word, word, half, st.integers(0, 255))
packets = st.one_of(
    st.builds(Dispatch, headers, word, word, half),
    st.builds(Copy, headers, word, word, word, half, st.sampled_from(CopyDirection), half),
    st.builds(Wait, headers, half, half),
    st.builds(Barrier, headers),
    st.builds(Indirect, headers, word, half),
)


@given(packets)
def test_decoding_undoes_encoding(packet: Packet) -> None:
    data = packet.encode()
    assert len(data) == PACKET_BYTES
    assert decode(data) == packet
    assert type(packet).__name__.upper() in describe(packet)


@given(st.binary(min_size=PACKET_BYTES, max_size=PACKET_BYTES))
def test_any_bytes_are_a_packet_or_an_error(data: bytes) -> None:
    try:
        packet = decode(data)
    except InvalidPacketError:
        return
    assert decode(packet.encode()) == packet


def test_the_layout_is_as_documented() -> None:
    data = Copy(
        Header(7, 1234, 5, INTERRUPT), 0x1000, 0x7000_0000_0000, 4096, 0xABCD, CopyDirection.HOST_TO_DEVICE
    ).encode()
    assert data[0] == 2
    assert data[1] == INTERRUPT
    assert struct.unpack_from("<IQQ", data, 4) == (5, 7, 1234)
    assert struct.unpack_from("<QQQI", data, 24) == (0x1000, 0x7000_0000_0000, 4096, 0xABCD)
    assert data[52] == 0
    assert data[53:] == bytes(11)


def test_a_packet_prints_as_one_line() -> None:
    packet = Dispatch(Header(3, 1500, 9, INTERRUPT), 4, 0x10001000, 3)
    assert describe(packet) == (
        "#3            1.500 us  DISPATCH  kernel 4, 3 arguments at 0x10001000, completes signal 9, interrupt"
    )


def test_zeroed_memory_and_short_data_are_not_packets() -> None:
    with pytest.raises(InvalidPacketError, match="unknown type 0"):
        decode(bytes(PACKET_BYTES))
    with pytest.raises(InvalidPacketError, match="64 bytes, not 3"):
        decode(b"abc")


def test_a_ring_wraps_around() -> None:
    ring = RingBuffer(4)
    for i in range(6):
        ring.write(i, Wait(Header(i, 0), i).encode())
    assert ring.memory[:PACKET_BYTES] == Wait(Header(4, 0), 4).encode()
    assert [p.header.sequence for p in map(ring.read, range(2, 6))] == [2, 3, 4, 5]
    assert [line.split()[0] for line in ring.dump(0, 6).splitlines()] == ["2", "3", "4", "5"]


# --- registers ------------------------------------------------------------------------------------------------------


def test_registers_hold_stored_values_and_do_not_overlap() -> None:
    registers = Registers()
    assert registers.read(Register.DEVICE_ID) == DEVICE_ID
    offsets = [*Register, *(queue_register(q, r) for q in range(3) for r in QueueRegister)]
    for value, offset in enumerate(offsets):
        registers.write(offset, value)
    assert [registers.read(offset) for offset in offsets] == list(range(len(offsets)))


def test_registers_are_printed_by_name() -> None:
    registers = Registers()
    registers.write(Register.STATUS, Status.HALTED)
    registers.write(queue_register(1, QueueRegister.RING_BASE), 0x1000)
    registers.write(queue_register(1, QueueRegister.DOORBELL), 12)
    text = registers.dump()
    assert "STATUS         HALTED" in text
    assert "queue 1 DOORBELL   0xc" in text
    assert "queue 0" not in text


# --- kernel arguments -----------------------------------------------------------------------------------------------

numbers = st.one_of(st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.none())


@given(st.lists(numbers, max_size=6))
def test_arguments_arrive_as_the_numbers_that_were_passed(values: list[bool | int | float | None]) -> None:
    block = encode_arguments(values)
    assert len(block) == len(values) * ARGUMENT_BYTES
    arrived = [value for _, value in decode_arguments(memoryview(block), len(values))]
    assert arrived == values
    assert [type(v) for v in arrived] == [type(v) for v in values]


def test_tensors_are_passed_by_the_address_of_their_first_element() -> None:
    ref = Ref(0x7000_0000_0000, contiguous(dtypes.float32, (4,)), 3)
    block = encode_arguments([1.5, ref])
    assert list(decode_arguments(memoryview(block), 2)) == [
        (ArgumentKind.FLOAT, 1.5),
        (ArgumentKind.ADDRESS, 0x7000_0000_000C),
    ]
    patch_argument(block, 0, 2)
    assert next(decode_arguments(memoryview(block), 2)) == (ArgumentKind.INT, 2)
