"""Communicators: base class of the implementations of collectives among the members of a group.

A member is a device of a process. `LocalCommunicator` supports any devices of one process, and `HierarchicalCommunicator`
devices of several processes, which a `ProcessGroup` connects.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from polyhal.hal.collectives.collective import Collective
from polyhal.hal.errors import message
from polyhal.hal.layout import Ref

if TYPE_CHECKING:
    from polyhal.hal.collectives.process_group import ProcessGroup
    from polyhal.hal.device import Device


@runtime_checkable
class SupportsCommunicator(Protocol):
    """Protocol of backends with their own collectives, such as a vendor's library.

    `open_communicator` calls it on the first device of a group. It is not a `Feature`: only the speed of collectives depends on
    it.
    """

    def open_communicator(
        self, devices: Sequence[Device], processes: ProcessGroup | None = None
    ) -> Communicator | None:
        """Return a communicator among `devices`, of any backends; None if the library does not support all of them.

        With `processes`, every process makes this call with its own devices, and the devices of all processes are members: the
        call returns a communicator in all processes, or None in all. Raises ProcessGroupError.
        """


BUCKET_BYTES = 25 * 2**20
"""Default bucket size in bytes, as in PyTorch's DistributedDataParallel."""


class Communicator:
    """Collectives among a fixed group of members, numbered from 0 over all processes. Subclasses define `run`."""

    bucket_bytes = BUCKET_BYTES
    """Bytes of the buckets in which large amounts of data are gathered or reduced."""
    on_compute_stream = False
    """True if each device enqueues its part of a collective on its compute stream, by `run_member`.

    Otherwise captured steps overlap `run` with other work, on separate streams.
    """
    recordable = False
    """True if `run_member` may be recorded in a command buffer. Each submission of it is inside of `submitting`."""
    turn: AbstractContextManager[Any] = nullcontext()
    """Lock that is held while collectives are enqueued on compute streams, all of a captured step or a single eager one. Every
    device must reach the collectives in the same order, whichever threads enqueue them."""

    def __init__(
        self, devices: Sequence[Device], processes: ProcessGroup | None = None, members: Sequence[int] = ()
    ) -> None:
        """Create a group; `members` has the number of members of each process. Raises ValueError for no or repeated devices."""
        self.devices = tuple(devices)
        """Devices of this process's members, in order."""
        self._processes = processes
        self._members = [len(self.devices)] if processes is None else list(members)
        """Number of members of each process."""
        self.first = 0 if processes is None else sum(self._members[: processes.rank])
        """Index of this process's first member; the others follow it."""
        self.size = sum(self._members)
        """Number of members in all processes."""
        if not self.devices or len(set(self.devices)) < len(self.devices):
            named = ", ".join(d.name for d in self.devices) or "no device"
            raise ValueError(message("Group", f"got {named}", expected="different devices, at least one"))

    def sources(self, collective: Collective) -> list[tuple[int, int]]:
        """Return (index in `devices`, number of elements) of each participant of this process that has a source."""
        sizes = (collective.source_size(self.first + i) for i in range(len(self.devices)))
        return [(i, size) for i, size in enumerate(sizes) if size is not None]

    def targets(self, collective: Collective) -> list[tuple[int, int]]:
        """Return (index in `devices`, number of elements) of each participant of this process that has a target."""
        sizes = (collective.target_size(self.first + i) for i in range(len(self.devices)))
        return [(i, size) for i, size in enumerate(sizes) if size is not None]

    def all_lengths(self, own: Sequence[int]) -> tuple[int, ...]:
        """Gather one number from each member; `own` has the numbers of this process's members."""
        if self._processes is None:
            return tuple(own)
        lengths = np.empty(self.size, np.int64)
        self._processes.all_gather(np.array(own, np.int64), lengths, self._members)
        return tuple(int(n) for n in lengths)

    def barrier(self) -> None:
        """Wait until all members have completed previously enqueued work."""
        for device in self.devices:
            device.synchronize()
        if self._processes is not None:
            self._processes.barrier()

    def run(self, collective: Collective, sources: Sequence[Ref | None], targets: Sequence[Ref | None]) -> None:
        """Run `collective`, with one source and one target per member of this process; None for a member without it.

        Sources and targets are contiguous vectors of one dtype. A target may equal the source of its member, may be the
        member's part of the source, or may contain the source as its part; it must not overlap anything else. The collective is
        ordered after previous work on the streams that the thread has selected, and before later work on them. It may block the
        host.

        All processes of a group make the same calls in the same order. Results are bitwise reproducible, and a result that
        several members receive is bitwise identical on all of them. Raises the typed error of a device that fails, and
        ProcessGroupError if another process is gone.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define run")

    def run_member(self, i: int, collective: Collective, source: Ref | None, target: Ref | None) -> None:
        """Enqueue the part of participant `i` of this process, on the stream that the thread has selected on its device.

        Only for communicators with `on_compute_stream`. It is called for every participant, each perhaps on its own thread, and
        in the same order of collectives for all. It returns without waiting for the other participants. Else like `run`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define run_member")

    def submitting(self, i: int) -> AbstractContextManager[None]:
        """Order recorded parts of participant `i`, which are submitted in the block, after earlier and before later ones.

        Only for communicators that are `recordable`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define submitting")

    def __repr__(self) -> str:
        local = "+".join(d.name for d in self.devices)
        others = self.size - len(self.devices)
        return f"group of {local}" + (f" and {others} of other processes" if others else "")


def members_of(processes: ProcessGroup, own: int) -> list[int]:
    """Return the number of members of each process. All processes make this call. Raises ProcessGroupError."""
    numbers = np.empty(processes.size, np.int64)
    processes.all_gather(np.array([own], np.int64), numbers, [1] * processes.size)
    return [int(n) for n in numbers]
