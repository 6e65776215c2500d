"""Hierarchical collectives among devices of several processes: within each process, then between processes in host memory.

Data that the devices of a process share is sent to other processes once. Sums are taken over the members of a process first,
then over the processes in the order of their ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polyhal.hal.collectives.collective import Collective, Kind, divided
from polyhal.hal.collectives.communicator import Communicator, members_of
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.system.communicators.relay import part

if TYPE_CHECKING:
    from polyhal.hal.collectives.process_group import ProcessGroup
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.hal.device import Device


class HierarchicalCommunicator(Communicator):
    """Collectives among the devices of `local` and the devices of the other processes of a group."""

    def __init__(self, local: Communicator, processes: ProcessGroup) -> None:
        """Create the communicator; blocks until all processes have made this call. Raises ProcessGroupError."""
        super().__init__(local.devices, processes, members_of(processes, len(local.devices)))
        self._local = local
        self._scratch: dict[Device, Buffer] = {}

    def run(self, collective: Collective, sources: Sequence[Ref | None], targets: Sequence[Ref | None]) -> None:
        processes = self._processes
        assert processes is not None
        rank = processes.rank
        dtype = next(r.dtype for r in (*sources, *targets) if r is not None)
        counts = [sum(collective.counts[first : first + n]) for first, n in self._ranges()]
        root = self._process_of(collective.root)
        whole = np.empty(collective.total, dtype.numpy)
        before = sum(counts[:rank])
        own = whole[before : before + counts[rank]]
        match collective.kind:
            case Kind.ALL_REDUCE:
                self._reduce_locally(collective, sources, whole)
                processes.all_reduce(whole, collective.reduction.value)
                self._store_all(whole, targets)
            case Kind.REDUCE:
                self._reduce_locally(collective, sources, whole)
                root_only = [collective.total if r == root else 0 for r in range(processes.size)]
                result = np.empty(root_only[rank], dtype.numpy)
                processes.reduce_scatter(whole, result, root_only, collective.reduction.value)
                self._store_all(result, targets)
            case Kind.REDUCE_SCATTER:
                self._reduce_locally(collective, sources, whole)
                result = np.empty(counts[rank], dtype.numpy)
                processes.reduce_scatter(whole, result, counts, collective.reduction.value)
                self._store_parts(result, targets)
            case Kind.ALL_GATHER:
                self._load_parts(sources, own)
                processes.all_gather(own, whole, counts)
                self._store_all(whole, targets)
            case Kind.GATHER:
                self._load_parts(sources, own)
                processes.gather(own, whole if rank == root else None, counts, root)
                self._store_all(whole, targets)
            case Kind.BROADCAST:
                self._load_parts(sources, whole)
                processes.broadcast(whole, root)
                self._store_all(whole, targets)
            case Kind.SCATTER:
                self._load_parts(sources, whole)
                result = np.empty(counts[rank], dtype.numpy)
                processes.scatter(whole if rank == root else None, result, counts, root)
                self._store_parts(result, targets)

    def _ranges(self) -> list[tuple[int, int]]:
        """Return the first member and the number of members of each process."""
        return [(sum(self._members[:r]), n) for r, n in enumerate(self._members)]

    def _process_of(self, member: int) -> int:
        return next(r for r, (first, n) in enumerate(self._ranges()) if first <= member < first + n)

    def _reduce_locally(self, collective: Collective, sources: Sequence[Ref | None], whole: np.ndarray) -> None:
        """Reduce the sources of this process, a part on each device, and download the parts."""
        parts = sources
        if len(self.devices) > 1:
            counts = divided(collective.total, len(self.devices))
            like = next(s for s in sources if s is not None)
            parts = [self._scratch_part(d, n, like) for d, n in zip(self.devices, counts, strict=True)]
            self._local.run(collective._replace(kind=Kind.REDUCE_SCATTER, counts=counts), sources, parts)
        self._load_parts(parts, whole)

    def _scratch_part(self, device: Device, size: int, like: Ref) -> Ref:
        """Return scratch memory on a device. The next call reuses it, which is safe because the device works in order."""
        spec = contiguous(like.dtype, (size,))
        buffer = self._scratch.get(device)
        if buffer is None or buffer.nbytes < spec.nbytes:
            buffer = self._scratch[device] = device.pool.take(bucket(spec.nbytes))
        return Ref(buffer.handle, spec, 0)

    def _load_parts(self, sources: Sequence[Ref | None], host: np.ndarray) -> None:
        """Download the sources of this process's members into consecutive parts of `host`."""
        start = 0
        for device, source in zip(self.devices, sources, strict=True):
            if source is not None and source.size:
                piece = host[start : start + source.size]
                offset = source.offset * source.dtype.itemsize
                device.backend.copy_from_device(source.handle, offset, byte_view(piece))
                start += source.size

    def _store_parts(self, host: np.ndarray, targets: Sequence[Ref | None]) -> None:
        """Upload consecutive parts of `host` to the targets of this process's members."""
        start = 0
        for device, target in zip(self.devices, targets, strict=True):
            if target is not None:
                _write(device, host[start : start + target.size], target)
                start += target.size

    def _store_all(self, host: np.ndarray, targets: Sequence[Ref | None]) -> None:
        """Upload `host` to all targets of this process's members."""
        for device, target in zip(self.devices, targets, strict=True):
            if target is not None:
                _write(device, host, part(target, 0, host.size))


def _write(device: Device, host: np.ndarray, target: Ref) -> None:
    if host.size:
        device.backend.copy_to_device(byte_view(host), target.handle, target.offset * target.dtype.itemsize)
