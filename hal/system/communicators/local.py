"""Collectives among devices of one process, of any backends.

Every part of a reduction is computed by one participant, its owner, from the parts of all participants in their order. So
results do not depend on the division of a vector into parts and chunks, and are bitwise identical on every participant,
whatever the vendors of the devices. Peer devices copy directly, others through the host as a hub. In both cases any device
reaches any other in one hop, so that a ring would only add copies.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.collectives.collective import Collective, Kind, Reduction, divided
from polyhal.hal.collectives.communicator import Communicator
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.inplace import write_into
from polyhal.hal.core.memory.buffer import Buffer
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.errors import message
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.system.communicators.direct import DirectCopies, reach_each_other
from polyhal.hal.system.communicators.relay import Delivery, Relay, chunks, part

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_OPS = {Reduction.SUM: OPS["add"], Reduction.MAX: OPS["maximum"], Reduction.MIN: OPS["minimum"]}


class LocalCommunicator(Communicator):
    """Collectives among `devices`, each a member. A lock serializes the calls of several threads."""

    def __init__(self, devices: Sequence[Device]) -> None:
        """Create a group of `devices`. Raises ValueError for no or repeated devices."""
        super().__init__(devices)
        self._carrier = DirectCopies(len(self.devices)) if reach_each_other(self.devices) else Relay()
        self._scratch: dict[tuple[Device, int, int], Buffer] = {}
        """Receive buffers of a run, by target device, sending participant and index in the rotation."""
        self._lock = threading.Lock()

    def run(self, collective: Collective, sources: Sequence[Ref | None], targets: Sequence[Ref | None]) -> None:
        """Run a collective; see `Communicator.run`."""
        with self._lock:
            try:
                self._carrier.deliver(self._deliveries(collective, sources, targets))
            finally:
                self._scratch.clear()
        for device in self.devices:
            device.flush()

    def _deliveries(
        self, collective: Collective, sources: Sequence[Ref | None], targets: Sequence[Ref | None]
    ) -> Iterator[Delivery]:
        kind, counts, starts, root = collective.kind, collective.counts, collective.starts, collective.root
        match kind:
            case Kind.ALL_REDUCE:
                even = collective._replace(counts=divided(collective.total, self.size))
                owners = dict(enumerate(zip(even.starts, even.counts, strict=True)))
                yield from self._reduced(collective.reduction, sources, owners, targets, shared=True)
            case Kind.REDUCE:
                yield from self._reduced(collective.reduction, sources, {root: (0, collective.total)}, targets)
            case Kind.REDUCE_SCATTER:
                owners = dict(enumerate(zip(starts, counts, strict=True)))
                yield from self._reduced(collective.reduction, sources, owners, targets)
            case Kind.BROADCAST:
                yield from self._copied(root, _given(sources[root]), {j: (t, 0) for j, t in enumerate(targets)})
            case Kind.SCATTER:
                whole = _given(sources[root])
                for j, t in enumerate(targets):
                    yield from self._copied(root, part(whole, starts[j], counts[j]), {j: (t, 0)})
            case Kind.GATHER:
                for i, s in enumerate(sources):
                    yield from self._copied(i, _given(s), {root: (targets[root], starts[i])})
            case Kind.ALL_GATHER:
                for i, s in enumerate(sources):
                    yield from self._copied(i, _given(s), {j: (t, starts[i]) for j, t in enumerate(targets)})

    def _copied(self, member: int, source: Ref, targets: dict[int, tuple[Ref | None, int]]) -> Iterator[Delivery]:
        """Copy the source of a participant into targets, each given with the index of its first element."""
        chunk = self._carrier.chunk(source.spec.nbytes)
        for start, size in chunks(source.size, source.dtype.itemsize, chunk):
            yield from self._spread(
                member,
                part(source, start, size),
                {j: part(_given(t), at + start, size) for j, (t, at) in targets.items()},
            )

    def _spread(self, member: int, piece: Ref, targets: dict[int, Ref]) -> Iterator[Delivery]:
        """Copy a chunk of a participant to its targets."""
        own = targets.get(member)
        if own is not None and not _same(piece, own):
            self.devices[member].backend.copy(piece, own)
        others = [(self.devices[j], target) for j, target in targets.items() if j != member]
        if others:
            yield Delivery(self.devices[member], piece, others)

    def _reduced(
        self,
        reduction: Reduction,
        sources: Sequence[Ref | None],
        owners: dict[int, tuple[int, int]],
        targets: Sequence[Ref | None],
        *,
        shared: bool = False,
    ) -> Iterator[Delivery]:
        """Reduce the owners' parts of all sources; `owners` has the first element and the number of elements of each part.

        The target of an owner is its part, or with `shared` the whole, and each reduced part is then sent to all participants.
        Chunks of the owners alternate.
        """
        turns = [
            self._reduced_by(owner, reduction, sources, start, size, targets, shared)
            for owner, (start, size) in owners.items()
        ]
        while turns:
            remaining = []
            for turn in turns:
                deliveries = next(turn, None)
                if deliveries is not None:
                    yield from deliveries
                    remaining.append(turn)
            turns = remaining

    def _reduced_by(
        self,
        owner: int,
        reduction: Reduction,
        sources: Sequence[Ref | None],
        start: int,
        size: int,
        targets: Sequence[Ref | None],
        shared: bool,
    ) -> Iterator[list[Delivery]]:
        """Yield for each chunk of an owner's part the deliveries to the owner; the last one triggers the reduction."""
        device = self.devices[owner]
        itemsize = _given(sources[owner]).dtype.itemsize
        parts = chunks(size, itemsize, self._carrier.chunk(size * itemsize))
        for turn, (at, length) in enumerate(parts):
            pieces = [part(_given(s), start + at, length) for s in sources]
            operands = [p if i == owner else self._arrival(owner, i, turn, p) for i, p in enumerate(pieces)]
            first = start + at if shared else at
            results = {j: part(_given(t), first, length) for j, t in enumerate(targets) if j == owner or shared}

            def reduce(operands: list[Ref] = operands, results: dict[int, Ref] = results) -> Iterator[Delivery]:
                _combine(device, reduction, operands, owner, results[owner])
                return self._spread(owner, results[owner], results)

            deliveries = [
                Delivery(self.devices[i], piece, [(device, operands[i])])
                for i, piece in enumerate(pieces)
                if i != owner
            ]
            if deliveries:
                deliveries[-1] = deliveries[-1]._replace(then=reduce)
                yield deliveries
            else:
                yield list(reduce())

    def _arrival(self, owner: int, member: int, turn: int, piece: Ref) -> Ref:
        """Return a receive buffer on the owner's device for a chunk, from a rotation.

        Reuse is safe because the device works in order. No later chunk is larger.
        """
        device = self.devices[owner]
        key = device, member, turn % self._carrier.arrivals
        buffer = self._scratch.get(key)
        if buffer is None:
            buffer = self._scratch[key] = device.pool.take(bucket(piece.spec.nbytes))
        return Ref(buffer.handle, contiguous(piece.dtype, piece.shape), 0)


class _Memory:
    """Placeholder of a buffer in calls that write in place."""

    def __init__(self) -> None:
        self.version = 0


def _combine(device: Device, reduction: Reduction, operands: Sequence[Ref], own: int, target: Ref) -> None:
    """Reduce operands, in order, into `target`. The participant's own operand is not overwritten unless it is the target."""
    if len(operands) == 1:
        if not _same(operands[0], target):
            device.backend.copy(operands[0], target)
        return
    memory: dict[int, Any] = {}
    refs = [*operands, target]
    arrays = [dispatch.Array(device, memory.setdefault(id(r.handle), _Memory()), r) for r in refs]
    total = arrays[0]
    for i, x in enumerate(arrays[1:-1], 1):
        # Partial sums overwrite a receive buffer, never the own operand.
        into = arrays[-1] if i == len(operands) - 1 else x if i == 1 and own == 0 else total
        write_into(_OPS[reduction], (total, x), (), (into,))
        total = into


def _same(a: Ref, b: Ref) -> bool:
    return a.handle is b.handle and a.offset == b.offset


def _given(ref: Ref | None) -> Ref:
    if ref is None:
        problem = "a participant has no source or no target"
        raise ValueError(message("collective", problem, expected="one of each"))
    return ref
