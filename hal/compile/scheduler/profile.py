"""Profiles of captured steps: device time by node and by module.

A profiled run makes the same launches as any other, with timestamps around each; a device without timestamps is synchronized
after every node or command buffer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from polyhal.hal.compile.ir.graph import Graph, Node
from polyhal.hal.core import dispatch
from polyhal.hal.protocol import TRANSFER, SupportsProfiling

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.executable import Partition


@dataclass(slots=True)
class NodeTime:
    """Times of one node, summed over all profiled runs, in nanoseconds."""

    op: str
    module: str
    node: Node | None
    """None for copies at the end of a step, and for command buffers whose launches the device does not time."""
    kernels: dict[str, int] = field(default_factory=dict)
    """Time of each kernel, by name."""
    launches: int = 0
    total: int = 0

    def add(self, kernel: str, elapsed: int) -> None:
        """Count one launch."""
        self.kernels[kernel] = self.kernels.get(kernel, 0) + elapsed
        self.launches += 1
        self.total += elapsed


class TimedLaunch(NamedTuple):
    """One launch of a profiled run, in nanoseconds of the device's clock."""

    node: Node | None
    """None for copies at the end of a step, and for command buffers whose launches the device does not time."""
    start: int
    end: int


class StepProfile:
    """Timer of the captured steps that this thread runs in a `with` block, node by node."""

    def __init__(self) -> None:
        self.runs = 0
        self.launches: list[TimedLaunch] = []
        """Launches of the last run, in order."""
        self._times: dict[Any, NodeTime] = {}
        self._previous: dispatch.PartitionTimer | None = None

    def __enter__(self) -> Self:
        self._previous, dispatch.thread.timer = dispatch.thread.timer, self
        return self

    def __exit__(self, *exc: object) -> None:
        dispatch.thread.timer = self._previous

    def run(self, partitions: Sequence[Partition], graph: Graph) -> None:
        """Run a step once. Called by its executable."""
        self.runs += 1
        self.launches = []
        for partition in partitions:
            backend = partition.device.backend
            if not isinstance(backend, SupportsProfiling):
                partition.device.synchronize()
                start = time.perf_counter_ns()
                partition.run()
                partition.device.synchronize()
                self._time(partition, 0 if len(partition.nodes) == 1 else None, "", start, time.perf_counter_ns())
                continue
            backend.start_profiling()
            try:
                partition.run()
            finally:
                events = [e for e in backend.stop_profiling() if e[0] != TRANSFER]
            calls = [0] * len(events) if partition.recorded is None else [x.call for x in partition.recorded.launches]
            for call, (kernel, start, end) in zip(calls, events, strict=True):
                self._time(partition, call, kernel, start, end)

    def _time(self, partition: Partition, call: int | None, kernel: str, start: int, end: int) -> None:
        node = None if call is None else partition.nodes[call]
        key = id(partition) if node is None else id(node)
        record = self._times.get(key)
        if record is None:
            op = (
                f"recording of {len(partition.nodes)} ops" if call is None else "copy" if node is None else node.op.name
            )
            module = node.origin.module if node is not None and node.origin is not None else ""
            record = self._times[key] = NodeTime(op, module, node)
        record.add(kernel, end - start)
        self.launches.append(TimedLaunch(node, start, end))

    @property
    def nodes(self) -> list[NodeTime]:
        """Times of all nodes that ran, the slowest first."""
        return sorted(self._times.values(), key=lambda t: -t.total)

    @property
    def total(self) -> int:
        """Total nanoseconds of all nodes in all runs."""
        return sum(t.total for t in self._times.values())

    def modules(self) -> list[tuple[str, int]]:
        """Return the nanoseconds by module, the slowest first; "" for nodes outside all modules."""
        totals: dict[str, int] = {}
        for t in self._times.values():
            totals[t.module] = totals.get(t.module, 0) + t.total
        return sorted(totals.items(), key=lambda pair: -pair[1])

    def time_of(self, node: Node) -> int | None:
        """Return the mean nanoseconds per run of a node of an executable's graph; None if it was not timed."""
        record = self._times.get(id(node))
        return None if record is None else record.total // self.runs

    def table(self, limit: int = 30) -> str:
        """Format nodes and modules with their mean time per run, the slowest first."""
        if not self.runs:
            return "no captured step ran"
        whole = self.total or 1
        rows = [
            (
                f"{t.total / self.runs / 1e3:.1f}",
                f"{100 * t.total / whole:.1f}",
                f"{t.launches / self.runs:g}",
                t.op,
                t.module,
                ", ".join(k for k in t.kernels if k),
            )
            for t in self.nodes[:limit]
        ]
        lines = [f"{self.runs} runs, {self.total / self.runs / 1e6:.3f} ms of device time each"]
        lines += _aligned([("us", "%", "launches", "op", "module", "kernels"), *rows], 3)
        if len(self._times) > limit:
            lines.append(f"... and {len(self._times) - limit} more")
        modules = [
            (f"{n / self.runs / 1e3:.1f}", f"{100 * n / whole:.1f}", m or "-") for m, n in self.modules()[:limit]
        ]
        return "\n".join([*lines, "", *_aligned([("us", "%", "module"), *modules], 2)])

    def __str__(self) -> str:
        return self.table()


def _aligned(rows: Iterable[Sequence[str]], right: int) -> list[str]:
    """Format rows as lines with columns of equal width; the first `right` columns are right-aligned."""
    table = list(rows)
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    return [
        "  ".join(
            c.rjust(w) if i < right else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in table
    ]
