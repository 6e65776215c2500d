"""Data movement of collectives by direct copies between peer devices.

Copies between two devices use separate streams per direction, so that copies of all pairs run concurrently, and the copy of the
next chunks overlaps with the reduction of the last ones.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.core.memory.peer_copies import copy_from_peer, has_peer_copy
from polyhal.hal.core.memory.streams import begin_to_wait
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import Event
from polyhal.hal.system.communicators.relay import Delivery

if TYPE_CHECKING:
    from polyhal.hal.core.memory.streams import Stream
    from polyhal.hal.device import Device

CHUNK = 64 * 2**20
"""Minimum bytes of a chunk. On a fast link its copy takes about as long as the host needs to start and complete a copy."""
_LARGEST = 4
"""Maximum size of a chunk in units of CHUNK, since each device needs memory for several chunks."""
_ROUNDS = 2
"""Maximum number of in-flight chunks per pair."""


class _Pair(NamedTuple):
    """Streams of the copies from one device to another."""

    sending: Stream
    receiving: Stream


class _InFlight(NamedTuple):
    """A delivery with the events of its copies."""

    delivery: Delivery
    events: Sequence[Event]


class DirectCopies:
    """Executor of deliveries by direct copies between devices."""

    arrivals = _ROUNDS + 1
    """Number of receive buffers per pair of participants, used in rotation: one is reduced while others are being filled."""

    def __init__(self, members: int) -> None:
        self._pairs: dict[tuple[Device, Device], _Pair] = {}
        self._arriving: set[tuple[int, int]] = set()
        """Receive buffers of copies that are in flight, or complete and not reduced yet."""
        self._arrived: list[tuple[int, int]] = []
        """Receive buffers of copies that later work is ordered after, but that are not reduced yet."""
        self._joined: set[Device] = set()
        """Devices whose streams wait for copies."""
        self._taking_part: set[Device] = set()
        """Devices with a delivery in the current call."""
        self._most_in_flight = _ROUNDS * members * (members - 1)

    def chunk(self, nbytes: int) -> int:
        """Return the bytes of one copy for a vector of `nbytes`: about half, so that a copy overlaps with a reduction."""
        return min(max(CHUNK, -(-nbytes // 2)), _LARGEST * CHUNK)

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Run deliveries and the deliveries that their `then` returns. The calls of `then` keep the order of deliveries."""
        self._taking_part.clear()
        in_flight: deque[_InFlight] = deque()
        for delivery in deliveries:
            while any(_address(buffer) in self._arriving for _, buffer in delivery.targets):
                self._finish(in_flight)  # the previous contents of the receive buffer must be reduced first
            self._begin(delivery, in_flight)
            while len(in_flight) > self._most_in_flight:
                self._finish(in_flight)
        while in_flight:
            self._finish(in_flight)
        self._arriving.clear()
        self._arrived.clear()
        while self._joined:
            begin_to_wait(
                self._joined.pop()
            )  # the next work may be a copy on another stream, which waits for this stream

    def _begin(self, delivery: Delivery, in_flight: deque[_InFlight]) -> None:
        """Start the copies, ordered after the current work of both devices."""
        source, events = delivery.device, []
        for device in {source, *(target for target, _ in delivery.targets)} - self._taking_part:
            begin_to_wait(device)  # the producer of its source may be on another stream, for which this stream waits
            self._taking_part.add(device)
        for target, buffer in delivery.targets:
            pair = self._pair(source, target)
            pair.sending.after_current()
            pair.receiving.after_current()
            with pair.sending.selected(), pair.receiving.selected():
                event = copy_from_peer(source, delivery.source, target, buffer)
            assert event is not None, "chunks have elements"
            events.append(event)
            self._arriving.add(_address(buffer))
        in_flight.append(_InFlight(delivery, events))

    def _finish(self, in_flight: deque[_InFlight]) -> None:
        """Order later work of both devices after the oldest copies, and run the delivery's `then`."""
        delivery, events = in_flight.popleft()
        for (target, buffer), event in zip(delivery.targets, events, strict=True):
            self._arrived.append(_address(buffer))
            for device in (delivery.device, target):
                # Wait for the event rather than for the pair's stream, which later copies have been enqueued on.
                if device.stream_backend is not None:
                    device.stream_backend.wait_for(event)
                self._joined.add(device)
        if delivery.then is not None:
            for following in delivery.then():
                self._begin(following, in_flight)
            # The reduction that `then` enqueued has consumed all buffers that arrived before it.
            self._arriving.difference_update(self._arrived)
            self._arrived.clear()

    def _pair(self, source: Device, target: Device) -> _Pair:
        pair = self._pairs.get((source, target))
        if pair is None:
            pair = self._pairs[source, target] = _Pair(source.stream(), target.stream())
        return pair


def _address(ref: Ref) -> tuple[int, int]:
    return id(ref.handle), ref.offset


def reach_each_other(devices: Sequence[Device]) -> bool:
    """Return whether all pairs of devices can copy from each other, and none uses host memory.

    For devices in host memory a relay by the host is as fast, and the host need not wait for each copy.
    """
    if any(d.capabilities.unified_memory for d in devices):
        return False
    return all(has_peer_copy(a, b) and has_peer_copy(b, a) for a, b in itertools.combinations(devices, 2))
