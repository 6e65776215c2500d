"""Where a captured step runs: the device of each node, what crosses between devices, and how lanes spend their time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.layout import Spec
from polyhal.hal.ops.traits import Trait
from polyhal.hal.scheduler.crossings import COLLECTIVE, MEMBER, PEER_COPY, RECEIVE, stands_for_collective

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.scheduler.lanes import Lane


class LaneTime(NamedTuple):
    """What a lane did in all runs so far, in nanoseconds."""

    lane: str
    runs: int
    enqueueing: int
    """Its own work. On devices that compute when they are called, that is the computation."""
    waiting: int
    """For values and collectives of other lanes."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a step runs. `str` makes it readable."""

    nodes: tuple[tuple[Node, Device], ...]
    """Every node that runs, transfers and collectives left out, with its device."""
    traffic: dict[tuple[Device, Device], int]
    """Bytes that a run transfers, by source and target."""
    collectives: dict[str, tuple[int, int]]
    """By kind, how many there are, and the bytes that all members together give and get in a run."""
    lanes: tuple[LaneTime, ...]
    """Empty for a step on one device."""

    def __str__(self) -> str:
        counts = Counter(device.name for _, device in self.nodes)
        lines = [f"{name}: {count} ops" for name, count in sorted(counts.items())]
        lines += [f"{a} to {b}: {_size(n)} in each run" for (a, b), n in self.traffic.items()]
        lines += [f"{kind}: {count} in each run, {_size(n)}" for kind, (count, n) in self.collectives.items()]
        for lane, runs, enqueueing, waiting in self.lanes:
            if runs:
                own, other = enqueueing / runs / 1e6, waiting / runs / 1e6
                lines.append(f"lane of {lane}: {own:.3f} ms enqueueing, {other:.3f} ms waiting per run")
        return "\n".join(lines)


def placement(graph: Graph, lanes: Sequence[Lane]) -> Placement:
    """The placement of a graph that runs in `lanes`."""
    nodes = [
        (node, node.device)
        for node in graph.nodes
        if not graph.is_view(node) and Trait.CROSS_DEVICE not in node.op.traits
    ]
    traffic: Counter[tuple[Device, Device]] = Counter()
    collectives: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if node.op is RECEIVE:
            traffic[_maker(graph, node.value(0)), node.device] += graph.tensor(node.outputs[0]).nbytes
        elif node.op is PEER_COPY:
            x, *started = node.reads
            source, target = (_maker(graph, v) for v in started)
            traffic[source, target] += graph.tensor(x).nbytes
        elif node.op in (COLLECTIVE, MEMBER):
            kind = str(node.params[0].kind.value)
            count, nbytes = collectives.get(kind, (0, 0))
            values = node.reads if node.op is COLLECTIVE else (*node.reads, *node.outputs)
            specs = [graph.specs[v] for v in values]
            nbytes += sum(s.nbytes for s in specs if isinstance(s, Spec))
            collectives[kind] = count + stands_for_collective(node), nbytes
    times = [LaneTime(x.name, x.runs, x.elapsed - x.waited, x.waited) for x in lanes]
    return Placement(tuple(nodes), dict(traffic), collectives, tuple(times))


def _maker(graph: Graph, value: int) -> Device:
    """The device of the node that makes a value."""
    return graph.nodes[graph.producer_index(value)].device


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:.2f} MiB" if nbytes >= 2**20 else f"{nbytes} B"
