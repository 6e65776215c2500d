"""Parameters that are owned by one device each, and gathered on all devices for a run of the model.

Gathering is a differentiable collective. Its gradient sums the replicas' gradients on the device that owns the parameter, so
that an ordinary optimizer updates every parameter once, on its owner: optimizer state is divided among the devices, and
replicas on devices of different vendors cannot diverge. Source: Rajbhandari et al., "ZeRO", arXiv:1910.02054.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.core import dispatch
from polyhal.nn.parameter import Parameter, relocate
from polyhal.parallel.group import Group
from polyhal.parallel.processes import divided_like, joined, joined_gradients, new_copies, shared_copies, start_alike
from polyhal.tape.function import attach, opaque
from polyhal.tape.modes import no_grad
from polyhal.tensor import Tensor

_TEMPORARY_BYTES = 100 * 2**20
"""Default maximum of a bucket that captured steps free and regather, in bytes. Two or three are resident at a time."""


class Bucket(NamedTuple):
    """Parameters of one dtype that are gathered by one collective: names by owner, in order."""

    names: tuple[tuple[str, ...], ...]


def assign_owners(
    sizes: Mapping[str, int], shares: Sequence[float], buckets: Sequence[Sequence[str]]
) -> dict[str, int]:
    """Assign parameters to devices, bucket by bucket, so that all devices own about their share of each.

    Within a bucket, the largest parameter is first. Each is assigned to the device with the least load relative to `shares`.
    """
    load = [0.0] * len(shares)
    owners: dict[str, int] = {}
    for names in buckets:
        for name in sorted(names, key=lambda n: -sizes[n]):
            owner = min(range(len(shares)), key=lambda i: (load[i] + sizes[name]) / shares[i])
            load[owner] += sizes[name]
            owners[name] = owner
    return owners


class Replication:
    """The parameters of a model, each on the device that owns it."""

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        group: Group,
        shares: Sequence[float],
        bucket_bytes: int | None,
        processes: ProcessGroup | None = None,
        *,
        temporary: bool = False,
    ) -> None:
        """Move each parameter to its owner. `bucket_bytes` of None means the communicator's size of buckets.

        With `processes`, owners are the same in each process, and gradients are summed over all processes. With `temporary`,
        captured steps free gathered parameters, and regather them for the backward pass.
        """
        self._parameters = dict(parameters)
        self._group = group
        self._temporary = temporary
        self.across = [] if processes is None else [Group([d], processes) for d in group.devices]
        """For each device, the group of its counterparts in all processes; empty without `processes`."""
        reduced_by = [*self.across, group] if len(group.devices) == 1 else [group]
        most = bucket_bytes or min(
            reduced_by[0].communicator.bucket_bytes, _TEMPORARY_BYTES if temporary else sys.maxsize
        )
        runs = list(_runs(self._parameters, most))
        sizes = {name: p.ref.spec.nbytes for name, p in self._parameters.items()}
        self.owners = assign_owners(sizes, shares, runs)
        """Index of the device that owns each parameter."""
        members = range(len(group.devices))
        self.buckets = [Bucket(tuple(tuple(n for n in run if self.owners[n] == i) for i in members)) for run in runs]
        for name, p in self._parameters.items():
            relocate(p, group.devices[self.owners[name]], None)
        if processes is not None:
            start_alike(self._parameters.values(), processes)

    def gathered(self) -> list[dict[str, Tensor]]:
        """Gather all parameters on every device, by name; their gradients flow to the owners' parameters."""
        replicas: list[dict[str, Tensor]] = [{} for _ in self._group.devices]
        for bucket in self.buckets:
            owned: list[list[Tensor]] = [[self._parameters[n] for n in names] for names in bucket.names]
            if self.across:
                owned = [shared_copies(xs, g) if xs else [] for xs, g in zip(owned, self.across, strict=True)]
            everywhere = self._gathered(owned) if len(owned) > 1 else owned
            names = [n for own in bucket.names for n in own]
            for replica, tensors in zip(replicas, everywhere, strict=True):
                replica |= zip(names, tensors, strict=True)
        return replicas

    def _gathered(self, owned: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        """Gather the tensors of all devices on each device; their gradients are summed on the owners."""
        group, flat = self._group, [x for xs in owned for x in xs]
        sizes = [sum(x.size for x in xs) for xs in owned]

        def gradients(node: Any, grads: list[Tensor | None], needs: tuple[bool, ...]) -> tuple[Tensor, ...]:
            own = [grads[i : i + len(flat)] for i in range(0, len(grads), len(flat))]
            vectors = [joined_gradients(gs, flat, d) for gs, d in zip(own, group.devices, strict=True)]
            sums = group.reduce_scatter(vectors, sizes=sizes)
            return tuple(g for v, xs in zip(sums, owned, strict=True) for g in new_copies(list(divided_like(v, xs))))

        with no_grad():
            vectors = [joined(xs, flat[0], d) for xs, d in zip(owned, group.devices, strict=True)]
            vectors = group.all_gather(vectors, sizes=sizes, temporary=self._temporary)
            everywhere = [list(divided_like(v, flat)) for v in vectors]
        if dispatch.thread.grad_enabled and any(x.requires_grad for x in flat):
            outs = tuple(x for xs in everywhere for x in xs)
            attach(opaque("gathered", len(outs)), tuple(flat), outs, gradients, fresh=True)
        return everywhere


def _runs(parameters: Mapping[str, Parameter], most: int) -> Iterator[list[str]]:
    """Yield names of successive parameters of one dtype and `requires_grad`, of at most `most` bytes, or one larger parameter.

    Parameters of another kind between them do not end a run.
    """
    runs: dict[Any, list[str]] = {}
    filled: dict[Any, int] = {}
    for name, p in parameters.items():
        kind = (p.dtype, p.requires_grad)
        nbytes = p.ref.spec.nbytes
        if kind in runs and filled[kind] + nbytes > most:
            yield runs.pop(kind)
        runs.setdefault(kind, []).append(name)
        filled[kind] = nbytes + (filled[kind] if len(runs[kind]) > 1 else 0)
    yield from runs.values()
