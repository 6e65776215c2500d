"""Partitions: the parts of a run, each one call or consecutive launches in a command buffer."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.backend_failures import note_backend_failure
from polyhal.hal.ir.graph import Node
from polyhal.hal.protocol import BindingSlot, CommandBuffer
from polyhal.hal.transfers.lane_link import LaneKey, LaneLink

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.memory.streams import Stream

    Streams = Mapping[Device, Stream]


class BoundCall(NamedTuple):
    """A call without arguments. The references in it are shared with the executable, which rebinds them."""

    device: Device
    run: Callable[[], None]
    recorded: bool
    """Whether it goes into a command buffer of the device."""
    node: Node | None = None
    """None for copies."""
    in_lane: Callable[[Streams], None] | None = None
    lane: LaneKey = None
    """See `Partition`; None for the device."""
    link: LaneLink | None = None


class Partition(NamedTuple):
    """A part of a run: one call, or consecutive launches in a command buffer."""

    device: Device
    run: Callable[[], None]
    nodes: Sequence[Node | None]
    """The node of each call; None for copies."""
    recorded: CommandBuffer | None
    in_lane: Callable[[Streams], None] | None = None
    """What its lane does in place of `run`, given streams for what runs beside other work."""
    lane: LaneKey = None
    """The lane of what runs beside other work; None for the device's."""
    link: LaneLink | None = None
    """Where its lane meets others."""


def partitioned(calls: Sequence[BoundCall], moved: Collection[BindingSlot]) -> list[Partition]:
    """The partitions of a run, in an order in which one thread may run them.

    A command buffer has what a device does between two crossings. It stands where its first call stood: what later calls of it
    need from other devices was there before that one.
    """
    lanes: dict[LaneKey, list[tuple[int, BoundCall]]] = {}
    for position, call in enumerate(calls):
        lanes.setdefault(call.lane or call.device, []).append((position, call))
    partitions: list[tuple[int, Partition]] = []
    for lane in lanes.values():
        for recorded, group in itertools.groupby(lane, key=lambda item: item[1].recorded):
            members = list(group)
            if recorded:
                first, call = members[0]
                backend: Any = call.device.backend
                commands = backend.record([c.run for _, c in members])
                submit = partial(commands.submit, moved)
                partitions.append((first, Partition(call.device, submit, [c.node for _, c in members], commands)))
                continue
            partitions += [
                (position, Partition(c.device, c.run, [c.node], None, c.in_lane, c.lane, c.link))
                for position, c in members
            ]
    return [p for _, p in sorted(partitions, key=lambda pair: pair[0])]


def run_in_turn(actions: Sequence[Callable[[], None]], partitions: Sequence[Partition]) -> None:
    """Make the calls of all partitions on this thread. Adds a note with the op to an exception of a backend."""
    remaining = iter(actions)
    try:
        for action in remaining:
            action()
    except Exception as error:
        partition = partitions[len(actions) - operator.length_hint(remaining) - 1]
        names = dict.fromkeys(n.op.name for n in partition.nodes if n is not None)
        note_backend_failure(error, f"captured step: {', '.join(names) or 'copy'}", partition.device)
        raise
