"""Parameters that belong to one device each, and are gathered on all of them when a model runs.

Gathering is a differentiable collective. Its gradient sums what the replicas computed, on the device that owns the parameter,
so that an ordinary optimizer updates every parameter once, where it lives: optimizer state is divided among the devices, and
replicas on devices of different vendors cannot drift apart. Source: Rajbhandari et al., "ZeRO", arXiv:1910.02054.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from polyhal import functions as ops
from polyhal.creation import empty
from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.nn.parameter import Parameter, relocate
from polyhal.parallel.group import Group
from polyhal.parallel.processes import shared_copy, start_alike
from polyhal.tensor import Tensor

BUCKET_BYTES = 25 * 2**20
"""Bytes that are gathered, and whose gradients are reduced, at a time: as in PyTorch's DistributedDataParallel."""


class Bucket(NamedTuple):
    """Parameters of one dtype that are gathered together: the names that each device owns, in order."""

    names: tuple[tuple[str, ...], ...]


def assign_owners(sizes: Mapping[str, int], shares: Sequence[float], buckets: Sequence[Sequence[str]]) -> dict[str, int]:
    """Choose the device that owns each parameter: the largest first, to the device with the least in relation to its share."""
    load = [0.0] * len(shares)
    owners: dict[str, int] = {}
    for names in buckets:
        for name in sorted(names, key=lambda n: -sizes[n]):
            owner = min(range(len(shares)), key=lambda i: (load[i] + sizes[name]) / shares[i])
            load[owner] += sizes[name]
            owners[name] = owner
    return owners


class Replication:
    """The parameters of a model, each moved to its owner."""

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        group: Group,
        shares: Sequence[float],
        bucket_bytes: int,
        processes: ProcessGroup | None = None,
        *,
        temporary: bool = False,
    ) -> None:
        """With `processes`, each has the same parameters with the same owners, and gradients are summed over all of them.

        With `temporary`, captured steps drop what they gather, and gather it again for the backward pass.
        """
        self._parameters = dict(parameters)
        self._group = group
        self._temporary = temporary
        self.across = [] if processes is None else [Group([d], processes) for d in group.devices]
        """For each device the group of those that own the same parameters in other processes; none if it is alone."""
        runs = list(_runs(self._parameters, bucket_bytes))
        sizes = {name: p.ref.spec.nbytes for name, p in self._parameters.items()}
        self.owners = assign_owners(sizes, shares, runs)
        """The number of the device that owns each parameter."""
        members = range(len(group.devices))
        self.buckets = [Bucket(tuple(tuple(n for n in run if self.owners[n] == i) for i in members)) for run in runs]
        for name, p in self._parameters.items():
            relocate(p, group.devices[self.owners[name]], None)
        if processes is not None:
            start_alike(self._parameters.values(), processes)

    def gathered(self) -> list[dict[str, Tensor]]:
        """All parameters on every device, by name; their gradients go to the owners' parameters."""
        replicas: list[dict[str, Tensor]] = [{} for _ in self._group.devices]
        for bucket in self.buckets:
            vectors = list(self._vectors(bucket))
            if self.across:
                vectors = [shared_copy(v, g) for v, g in zip(vectors, self.across, strict=True)]
            vectors = self._group.all_gather(vectors, temporary=self._temporary)
            for replica, vector in zip(replicas, vectors, strict=True):
                replica |= self._split(bucket, vector)
        return replicas

    def _vectors(self, bucket: Bucket) -> Iterator[Tensor]:
        """What each device owns of a bucket, as one vector."""
        dtype = next(self._parameters[n].dtype for names in bucket.names for n in names)
        for device, names in zip(self._group.devices, bucket.names, strict=True):
            flat = [ops.reshape(self._parameters[n], (-1,)) for n in names]
            yield ops.concat(flat, 0) if len(flat) > 1 else flat[0] if flat else empty((0,), dtype, device)

    def _split(self, bucket: Bucket, vector: Tensor) -> dict[str, Tensor]:
        """The parameters in a gathered bucket."""
        parts: dict[str, Tensor] = {}
        start = 0
        for name in (n for names in bucket.names for n in names):
            p = self._parameters[name]
            parts[name] = ops.reshape(ops.narrow(vector, 0, start, p.size), p.shape)
            start += p.size
        return parts


def _runs(parameters: Mapping[str, Parameter], most: int) -> Iterator[list[str]]:
    """Names of parameters that follow one another and are of one kind, of up to `most` bytes together."""
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
