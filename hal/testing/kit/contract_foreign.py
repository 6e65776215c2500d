"""Checks of memory and streams that the device shares with other libraries. The backend itself stands for the other library."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.peer_memory import SupportsDeviceAddress, SupportsForeignMemory
from polyhal.hal.protocol import SupportsStreams
from polyhal.hal.testing.kit.member_calls import MemberCheck

_SIZE = 100_000
_START = 64
"""Elements before the imported memory."""
_ROUNDS = 30
"""Additions that the other stream has to wait for."""


def checks(device: Device) -> Iterator[tuple[str, MemberCheck]]:
    """Yield the checks by name; none if the device does not share memory."""
    backend = device.backend
    if not isinstance(backend, SupportsForeignMemory):
        return
    yield "foreign_memory/addresses", partial(addresses, backend)
    yield "foreign_memory/both_ways", partial(both_ways, backend)
    yield "foreign_memory/release", partial(release, backend)
    if isinstance(backend, SupportsStreams):
        yield "foreign_memory/streams", partial(streams, backend)
        yield "foreign_memory/mark", partial(mark, backend)


def addresses(backend: Any) -> None:
    """Check that addresses are in the memory space of the device."""
    has_addresses = isinstance(backend, SupportsDeviceAddress)
    assert has_addresses, "the backend lacks the members of SupportsDeviceAddress"
    handle = backend.allocate(_SIZE)
    place = backend.device_address(handle)
    assert place is not None, "device_address returned None, but the device shares memory"
    assert (place.kind, place.number) == backend.memory_space(), f"{place} is not in {backend.memory_space()}"
    for address in (place.address, place.address + _SIZE - 1):
        found = backend.number_of_device(address)
        assert found == place.number, f"number_of_device returned {found} for memory of device {place.number}"
    host = np.zeros(100)
    found = backend.number_of_device(host.__array_interface__["data"][0])
    assert found is None, f"number_of_device returned {found} for memory of the host"
    backend.deallocate(handle)


def _array(backend: Any, value: float) -> tuple[Any, Ref]:
    handle = backend.allocate(4 * _SIZE)
    ref = Ref(handle, contiguous(dtypes.float32, (_SIZE,)), 0)
    backend.fill(value, ref)
    return handle, ref


def _imported(backend: Any, handle: Any) -> Ref:
    """Return a reference to all elements of an array but the first ones, by their address."""
    size = _SIZE - _START
    imported = backend.import_device_memory(backend.device_address(handle).address + 4 * _START, 4 * size)
    return Ref(imported, contiguous(dtypes.float32, (size,)), 0)


def _read(backend: Any, handle: Any, nbytes: int) -> np.ndarray:
    out = bytearray(nbytes)
    backend.copy_from_device(handle, 0, memoryview(out))
    return np.frombuffer(out, np.float32)


def both_ways(backend: Any) -> None:
    """Check that work on the memory and on its import see each other's writes."""
    handle, ref = _array(backend, 1.0)
    part = _imported(backend, handle)
    backend.binary("add", part, part, part)
    expected = np.ones(_SIZE, np.float32)
    expected[_START:] = 2
    assert (_read(backend, handle, 4 * _SIZE) == expected).all(), "writes to imported memory are wrong or elsewhere"
    backend.fill(5.0, ref)
    found = _read(backend, part.handle, part.spec.nbytes)
    assert (found == 5).all(), f"imported memory has {found[found != 5][0]} instead of 5"
    for used in (part.handle, handle):
        backend.deallocate(used)


def release(backend: Any) -> None:
    """Check that releasing an import does not release the memory, and that memory can be imported again."""
    handle, _ = _array(backend, 1.0)
    for step in range(1, 4):
        first, second = _imported(backend, handle), _imported(backend, handle)
        backend.deallocate(first.handle)
        backend.fill(float(step), second)
        backend.deallocate(second.handle)
        found = _read(backend, handle, 4 * _SIZE)[_START:]
        assert (found == step).all(), f"the memory of a released import has {found[found != step][0]}, expected {step}"
    backend.deallocate(handle)


def streams(backend: Any) -> None:
    """Check that each side's stream can wait for the other's, named by its number."""
    other = backend.open_stream()
    own_number = backend.stream_number()
    backend.switch_stream(other)
    other_number = backend.stream_number()
    backend.switch_stream(None)
    assert own_number != other_number, f"two streams have the number {own_number}"
    (handle, total), (unit, one) = (_array(backend, value) for value in (0.0, 1.0))
    backend.synchronize()
    for step in range(1, 4):
        _add(backend, total, one)
        backend.let_stream_wait(other_number)
        backend.switch_stream(other)
        found, expected = _read(backend, handle, 4 * _SIZE), (2 * step - 1) * _ROUNDS
        _add(backend, total, one)
        backend.switch_stream(None)
        assert (found == expected).all(), f"the other stream read {found.min()}, expected {expected}: it did not wait"
        backend.wait_for_stream(other_number)
        found, expected = _read(backend, handle, 4 * _SIZE), 2 * step * _ROUNDS
        assert (found == expected).all(), f"the own stream read {found.min()}, expected {expected}: it did not wait"
    for used in (handle, unit):
        backend.deallocate(used)


def _add(backend: Any, total: Ref, one: Ref) -> None:
    for _ in range(_ROUNDS):
        backend.binary("add", total, one, total)


def mark(backend: Any) -> None:
    """Check that an event after everything is complete after the work of all streams."""
    (handle, total), (unit, one) = (_array(backend, value) for value in (0.0, 1.0))
    backend.synchronize()
    backend.switch_stream(backend.open_stream())
    _add(backend, total, one)
    done = backend.mark()
    backend.switch_stream(None)
    everything = backend.mark_everything()
    everything.wait()
    assert everything.is_complete(), "the event is not complete after its wait"
    assert done.is_complete(), "the event after everything is complete before the work of another stream"
    for used in (handle, unit):
        backend.deallocate(used)
