"""Placement report of a captured step: the device of each node, traffic between devices, and times of the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.compile.scheduler.cross_device import COLLECTIVE, ENQUEUE, PEER_COPY, RECEIVE, represents_collective
from polyhal.hal.layout import Spec
from polyhal.hal.ops.traits import Trait

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.device_workers import DeviceWorker
    from polyhal.hal.device import Device


class WorkerTime(NamedTuple):
    """Times of a worker in all runs so far, in nanoseconds."""

    worker: str
    runs: int
    enqueueing: int
    """Time to enqueue its work. On synchronous devices this includes the computation."""
    waiting: int
    """Time blocked on values and collectives of other workers."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of a step on devices; `str` formats it."""

    nodes: tuple[tuple[Node, Device], ...]
    """Nodes that run, with their devices; without transfers and collectives."""
    traffic: dict[tuple[Device, Device], int]
    """Bytes transferred per run, by (source, target)."""
    collectives: dict[str, tuple[int, int]]
    """Number of collectives per run, and bytes of all their send and receive buffers, by kind."""
    workers: tuple[WorkerTime, ...]
    """Times of the workers; empty for a step on one device."""

    def __str__(self) -> str:
        counts = Counter(device.name for _, device in self.nodes)
        lines = [f"{name}: {count} ops" for name, count in sorted(counts.items())]
        lines += [f"{a} to {b}: {_size(n)} in each run" for (a, b), n in self.traffic.items()]
        lines += [f"{kind}: {count} in each run, {_size(n)}" for kind, (count, n) in self.collectives.items()]
        for worker, runs, enqueueing, waiting in self.workers:
            if runs:
                own, other = enqueueing / runs / 1e6, waiting / runs / 1e6
                lines.append(f"worker of {worker}: {own:.3f} ms enqueueing, {other:.3f} ms waiting per run")
        return "\n".join(lines)


def placement(graph: Graph, workers: Sequence[DeviceWorker]) -> Placement:
    """Return the placement of a graph that `workers` run."""
    nodes = [
        (node, node.device)
        for node in graph.nodes
        if not graph.is_view(node) and Trait.CROSS_DEVICE not in node.op.traits
    ]
    traffic: Counter[tuple[Device, Device]] = Counter()
    collectives: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if node.op is RECEIVE:
            traffic[_producer_device(graph, node.value(0)), node.device] += graph.tensor(node.outputs[0]).nbytes
        elif node.op is PEER_COPY:
            x, *started = node.reads
            source, target = (_producer_device(graph, v) for v in started)
            traffic[source, target] += graph.tensor(x).nbytes
        elif node.op in (COLLECTIVE, ENQUEUE):
            kind = str(node.params[0].kind.value)
            count, nbytes = collectives.get(kind, (0, 0))
            values = node.reads if node.op is COLLECTIVE else (*node.reads, *node.outputs)
            specs = [graph.specs[v] for v in values]
            nbytes += sum(s.nbytes for s in specs if isinstance(s, Spec))
            collectives[kind] = count + represents_collective(node), nbytes
    times = [WorkerTime(x.name, x.runs, x.elapsed - x.waited, x.waited) for x in workers]
    return Placement(tuple(nodes), dict(traffic), collectives, tuple(times))


def _producer_device(graph: Graph, value: int) -> Device:
    """Return the device of a value's producer."""
    return graph.nodes[graph.producer_index(value)].device


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:.2f} MiB" if nbytes >= 2**20 else f"{nbytes} B"
