"""The base of communicators: what carries out collectives among the members of a group.

A member is a device of a process. `LocalCommunicator` serves the devices of one process, any that there are;
`HierarchicalCommunicator` those of several processes, which a `ProcessGroup` connects.
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
    """Devices with collectives of their own, such as a vendor's library. `open_communicator` asks the first device of a group.

    It is no `Feature`: nothing depends on it but how fast collectives are.
    """

    def open_communicator(self, devices: Sequence[Device], processes: ProcessGroup | None = None) -> Communicator | None:
        """Return a communicator among `devices`, of any backends; None if the library does not serve all of them.

        With `processes`, all of them make this call with their own devices, and those of all are members: either all processes
        get a communicator or none does. Raises ProcessGroupError.
        """


BUCKET_BYTES = 25 * 2**20
"""As in PyTorch's DistributedDataParallel."""


class Communicator:
    """Carries out collectives among a fixed group of members, numbered from 0 over all processes. Subclasses define `run`."""

    bucket_bytes = BUCKET_BYTES
    """Bytes that are gathered or reduced at a time where there is much."""
    on_compute_stream = False
    """Whether each device enqueues its part of a collective on its compute stream, by `run_member`.

    Otherwise captured steps overlap `run` with other work, on separate streams.
    """
    turn: AbstractContextManager[Any] = nullcontext()
    """Lock that is held while collectives are enqueued on compute streams, all of a captured step or a single eager one. Every
    device must reach the collectives in the same order, whichever threads enqueue them."""

    def __init__(
        self, devices: Sequence[Device], processes: ProcessGroup | None = None, members: Sequence[int] = ()
    ) -> None:
        """`members` says how many each of the `processes` has. Raises ValueError for no device, or one that is named twice."""
        self.devices = tuple(devices)
        """The devices of this process's members, in order."""
        self._processes = processes
        self._members = [len(self.devices)] if processes is None else list(members)
        """The number of members of each process."""
        self.first = 0 if processes is None else sum(self._members[: processes.rank])
        """The number of this process's first member; the others follow it."""
        self.size = sum(self._members)
        """The number of members in all processes."""
        if not self.devices or len(set(self.devices)) < len(self.devices):
            named = ", ".join(d.name for d in self.devices) or "no device"
            raise ValueError(message("Group", f"got {named}", expected="different devices, at least one"))

    def sources(self, collective: Collective) -> list[tuple[int, int]]:
        """The members of this process that give something, by position among `devices`, and how many elements each gives."""
        sizes = (collective.source_size(self.first + i) for i in range(len(self.devices)))
        return [(i, size) for i, size in enumerate(sizes) if size is not None]

    def targets(self, collective: Collective) -> list[tuple[int, int]]:
        """The members of this process that get something, by position among `devices`, and how many elements each gets."""
        sizes = (collective.target_size(self.first + i) for i in range(len(self.devices)))
        return [(i, size) for i, size in enumerate(sizes) if size is not None]

    def all_lengths(self, own: Sequence[int]) -> tuple[int, ...]:
        """One number of each member, given those of this process's members."""
        if self._processes is None:
            return tuple(own)
        lengths = np.empty(self.size, np.int64)
        self._processes.all_gather(np.array(own, np.int64), lengths, self._members)
        return tuple(int(n) for n in lengths)

    def barrier(self) -> None:
        """Wait until all members have done the work that was enqueued before."""
        for device in self.devices:
            device.synchronize()
        if self._processes is not None:
            self._processes.barrier()

    def run(self, collective: Collective, sources: Sequence[Ref | None], targets: Sequence[Ref | None]) -> None:
        """Carry out `collective`, with one source and one target per member of this process; None where it has none.

        Sources and targets are contiguous vectors of one dtype. A target may be exactly the source of its member, or its part
        of it or the reverse, and overlaps nothing else. The call comes after the work that makes the sources, on the streams
        that the thread has selected; later work on these streams sees the targets. It may block the host.

        All processes of a group make the same calls in the same order. Results are the same from run to run, bit for bit, and
        those that several members get are the same on all of them. Raises the typed error of a device that fails, and
        ProcessGroupError if another process is gone.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no run")

    def run_member(self, i: int, collective: Collective, source: Ref | None, target: Ref | None) -> None:
        """Enqueue the part of participant `i` of this process, on the stream that the thread has selected on its device.

        Only for communicators with `on_compute_stream`. It is called for every participant, each perhaps on its own thread, and
        in the same order of collectives for all. It returns without waiting for the other participants. Else like `run`.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no run_member")

    def __repr__(self) -> str:
        local = "+".join(d.name for d in self.devices)
        others = self.size - len(self.devices)
        return f"group of {local}" + (f" and {others} of other processes" if others else "")


def members_of(processes: ProcessGroup, own: int) -> list[int]:
    """The number of members of each process. All make this call. Raises ProcessGroupError."""
    numbers = np.empty(processes.size, np.int64)
    processes.all_gather(np.array([own], np.int64), numbers, [1] * processes.size)
    return [int(n) for n in numbers]
