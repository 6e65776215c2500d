"""Times of collectives: latency and bytes on the links, for rings, trees, and the two levels of a cluster.

Formulas: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.forecast.cluster import Cluster


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """Devices that communicate with each other, at the same time as all other groups of the same kind."""

    local: int
    """Participants in each node."""
    nodes: int

    @property
    def size(self) -> int:
        """Number of participants."""
        return self.local * self.nodes


def group_of(cluster: Cluster, size: int, stride: int) -> DeviceGroup:
    """Return the group of `size` devices whose numbers differ by `stride`."""
    local = max(1, min(size, cluster.used_per_node // stride))
    return DeviceGroup(local, -(-size // local))


def all_reduce(cluster: Cluster, group: DeviceGroup, nbytes: float) -> float:
    """Return the seconds of an all-reduce: reduce-scatter within nodes, all-reduce between nodes, all-gather within nodes."""
    if group.size == 1 or not nbytes:
        return 0.0
    inside = 2 * _ring(group.local, nbytes, cluster.inside.bandwidth, cluster.inside.latency)
    if group.nodes == 1:
        return min(inside, _tree(group.local, nbytes, cluster.inside.bandwidth, cluster.inside.latency))
    part = nbytes / group.local
    ring = 2 * _ring(group.nodes, part, cluster.port_share, cluster.between.latency)
    return inside + min(ring, _tree(group.nodes, part, cluster.port_share, cluster.between.latency))


def reduce_scatter(cluster: Cluster, group: DeviceGroup, nbytes: float) -> float:
    """Return the seconds until every participant has its part of the sum of `nbytes`."""
    if group.size == 1 or not nbytes:
        return 0.0
    inside = _ring(group.local, nbytes, cluster.inside.bandwidth, cluster.inside.latency)
    part = nbytes / group.local
    return inside + _ring(group.nodes, part, cluster.port_share, cluster.between.latency)


def all_gather(cluster: Cluster, group: DeviceGroup, nbytes: float) -> float:
    """Return the seconds until every participant has all parts of `nbytes`: as long as a reduce-scatter."""
    return reduce_scatter(cluster, group, nbytes)


def send(cluster: Cluster, stride: int, nbytes: float) -> float:
    """Return the seconds of a transfer from a device to the one whose number is `stride` higher."""
    if stride < cluster.used_per_node:
        return cluster.inside.latency + nbytes / cluster.inside.bandwidth
    return cluster.between.latency + nbytes / cluster.port_share


def _ring(members: int, nbytes: float, bandwidth: float, latency: float) -> float:
    """Return the seconds of half an all-reduce: `members - 1` steps, each a message to the neighbour."""
    return (members - 1) * (latency + nbytes / members / bandwidth)


def _tree(members: int, nbytes: float, bandwidth: float, latency: float) -> float:
    """Return the seconds of an all-reduce along a binary tree, up and down, in pipelined chunks."""
    return 2 * (math.ceil(math.log2(members)) * latency + nbytes / bandwidth) if members > 1 else 0.0
