"""Partitions: units of a run that are enqueued at once, a single call or a command buffer of consecutive launches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.compile.ir.graph import Node
from polyhal.hal.compile.scheduler.enqueue_collectives import EnqueuedCollective
from polyhal.hal.compile.scheduler.recorded_collectives import RecordedCollectives
from polyhal.hal.core.backend_failures import note_backend_failure
from polyhal.hal.core.transfers.worker_link import WorkerKey, WorkerLink
from polyhal.hal.ops.layout.host_call import HOST_CALL
from polyhal.hal.protocol import BindingSlot, CommandBuffer

if TYPE_CHECKING:
    from polyhal.hal.core.memory.streams import Stream
    from polyhal.hal.device import Device

    Streams = Mapping[Device, Stream]


class BoundCall(NamedTuple):
    """A call with bound arguments: `run` uses references that the executable mutates in place to rebind them."""

    device: Device
    run: Callable[[], None]
    recorded: bool
    """True if the call is recorded in a command buffer of the device."""
    node: Node | None = None
    """None for copies."""
    on_worker: Callable[[Streams], None] | None = None
    worker: WorkerKey = None
    """Key of a communication worker; None for the worker of `device`."""
    link: WorkerLink | None = None


class Partition(NamedTuple):
    """A single call, or a command buffer of consecutive launches."""

    device: Device
    run: Callable[[], None]
    nodes: Sequence[Node | None]
    """Node of each call; None for copies."""
    recorded: CommandBuffer | None
    on_worker: Callable[[Streams], None] | None = None
    """Action of a worker thread instead of `run`, with the streams for overlapped work; None if it is `run`."""
    worker: WorkerKey = None
    """Key of a communication worker; None for the worker of `device`."""
    link: WorkerLink | None = None
    """Link to other workers; None for calls on one device."""


def partitioned(calls: Sequence[BoundCall], moved: Collection[BindingSlot]) -> list[Partition]:
    """Return the partitions of a run, in an order in which a single thread can run them without a deadlock.

    A command buffer contains recorded calls that are consecutive on their device, its parts of collectives included if the
    communicator is recordable. Any other call of the device ends it, such as a receive from another device. So all values from
    other devices that it reads were received before its first call, and it takes the position of that call. Each submission of
    a command buffer rebinds the slots in `moved`.
    """
    workers: dict[WorkerKey, list[tuple[int, BoundCall]]] = {}
    for position, call in enumerate(calls):
        workers.setdefault(call.worker or call.device, []).append((position, call))
    partitions: list[tuple[int, Partition]] = []
    for worker in workers.values():
        for recorded, group in itertools.groupby(worker, key=lambda item: item[1].recorded):
            calls_in_row = list(group)
            if recorded:
                first, call = calls_in_row[0]
                backend: Any = call.device.backend
                commands = backend.record([c.run for _, c in calls_in_row])
                submit = partial(commands.submit, moved)
                links = [c.link for _, c in calls_in_row if isinstance(c.link, EnqueuedCollective)]
                together = RecordedCollectives(call.device, links) if links else None
                run = submit if together is None else partial(together.submit, submit)
                nodes = [c.node for _, c in calls_in_row]
                partitions.append((first, Partition(call.device, run, nodes, commands, link=together)))
                continue
            partitions += [
                (position, Partition(c.device, c.run, [c.node], None, c.on_worker, c.worker, c.link))
                for position, c in calls_in_row
            ]
    return [p for _, p in sorted(partitions, key=lambda pair: pair[0])]


def run_in_turn(actions: Sequence[Callable[[], None]], partitions: Sequence[Partition]) -> None:
    """Run the actions of all partitions in order on this thread. A note with the op is added to an exception."""
    position = 0
    try:
        for position, action in enumerate(actions):  # noqa: B007 - read after an exception
            action()
    except Exception as error:
        note_failure(error, partitions[position])
        raise


def note_failure(error: Exception, partition: Partition) -> None:
    """Add a note with the ops of a partition to its exception, unless the program's own function has raised it."""
    names = dict.fromkeys(n.op.name for n in partition.nodes if n is not None)
    if HOST_CALL.name not in names:
        note_backend_failure(error, f"captured step: {', '.join(names) or 'copy'}", partition.device)
