"""Direct copies between devices that all reach each other's memory, as a way to carry collectives.

Copies between two devices take streams of their own, so that those of other pairs run at the same time, in both directions, and
the next chunks are on their way while the devices reduce the last ones.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.collectives.relay import Delivery
from polyhal.hal.layout import Ref
from polyhal.hal.memory.peer_copies import copy_from_peer, has_peer_copy
from polyhal.hal.memory.streams import begin_to_wait
from polyhal.hal.protocol import Event

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.memory.streams import Stream

CHUNK = 64 * 2**20
"""Bytes. Over a fast link this takes about as long as the host needs to start such a copy and to hear of its end."""
_LARGEST = 4
"""Chunks in the largest one, since several of them take memory of each device."""
_ROUNDS = 2
"""Chunks of each pair that are on their way at a time."""


class _Pair(NamedTuple):
    """What the copies from one device to another use."""

    sending: Stream
    receiving: Stream


class _UnderWay(NamedTuple):
    """A delivery with the events of its copies."""

    delivery: Delivery
    events: Sequence[Event]


class DirectCopies:
    """Copies from device to device, in any of the groups to which both belong."""

    arrivals = _ROUNDS + 1
    """Places where chunks from one member to another arrive in turn: one is reduced while others are under way."""

    def __init__(self, members: int) -> None:
        self._pairs: dict[tuple[Device, Device], _Pair] = {}
        self._arriving: set[tuple[int, int]] = set()
        """The places to which copies are under way, or where they have arrived and are not reduced yet."""
        self._arrived: list[tuple[int, int]] = []
        """Those of the latter kind."""
        self._joined: set[Device] = set()
        """The devices whose streams wait for copies."""
        self._taking_part: set[Device] = set()
        """The devices that have a delivery of the present call."""
        self._most_under_way = _ROUNDS * members * (members - 1)

    def chunk(self, nbytes: int) -> int:
        """Bytes of one copy, for a vector of `nbytes`: halves, so that one is reduced while the other is under way."""
        return min(max(CHUNK, -(-nbytes // 2)), _LARGEST * CHUNK)

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Carry out deliveries, and those that follow from them. What each does afterwards is done in their order."""
        self._taking_part.clear()
        under_way: deque[_UnderWay] = deque()
        for delivery in deliveries:
            while any(_place(there) in self._arriving for _, there in delivery.targets):
                self._finish(under_way)  # what arrived there before is to be reduced first
            self._begin(delivery, under_way)
            while len(under_way) > self._most_under_way:
                self._finish(under_way)
        while under_way:
            self._finish(under_way)
        self._arriving.clear()
        self._arrived.clear()
        while self._joined:
            begin_to_wait(self._joined.pop())  # what comes next may be a copy on another stream, which waits for this one

    def _begin(self, delivery: Delivery, under_way: deque[_UnderWay]) -> None:
        """Start the copies, after what both devices have to do now."""
        source, events = delivery.device, []
        for device in {source, *(target for target, _ in delivery.targets)} - self._taking_part:
            begin_to_wait(device)  # what makes its source may be on another stream, for which this one was told to wait
            self._taking_part.add(device)
        for target, there in delivery.targets:
            pair = self._pair(source, target)
            pair.sending.after_current()
            pair.receiving.after_current()
            with pair.sending.selected(), pair.receiving.selected():
                event = copy_from_peer(source, delivery.source, target, there)
            assert event is not None, "chunks have elements"
            events.append(event)
            self._arriving.add(_place(there))
        under_way.append(_UnderWay(delivery, events))

    def _finish(self, under_way: deque[_UnderWay]) -> None:
        """Let what both devices do from now on come after the oldest copies."""
        delivery, events = under_way.popleft()
        for (target, there), event in zip(delivery.targets, events, strict=True):
            self._arrived.append(_place(there))
            for device in (delivery.device, target):
                # Not for their streams, which have got later copies meanwhile.
                if device.stream_backend is not None:
                    device.stream_backend.wait_for(event)
                self._joined.add(device)
        if delivery.then is not None:
            for following in delivery.then():
                self._begin(following, under_way)
            # What has arrived by now was reduced.
            self._arriving.difference_update(self._arrived)
            self._arrived.clear()

    def _pair(self, source: Device, target: Device) -> _Pair:
        pair = self._pairs.get((source, target))
        if pair is None:
            pair = self._pairs[source, target] = _Pair(source.stream(), target.stream())
        return pair


def _place(ref: Ref) -> tuple[int, int]:
    return id(ref.handle), ref.offset


def reach_each_other(devices: Sequence[Device]) -> bool:
    """Whether each device can copy from each other one, and has memory of its own.

    Of those that work in the host's memory, the host copies for several as fast, and need not wait for each.
    """
    if any(d.capabilities.unified_memory for d in devices):
        return False
    return all(has_peer_copy(a, b) and has_peer_copy(b, a) for a, b in itertools.combinations(devices, 2))
