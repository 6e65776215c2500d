"""Where the time of captured steps goes: device time by node, with the modules that the nodes belong to.

A profiled run makes the same launches as any other, with timestamps around each; a device that has none is waited for
after every node or recording.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from polyhal.hal import dispatch
from polyhal.hal.ir.graph import Node
from polyhal.hal.protocol import TRANSFER, Feature

if TYPE_CHECKING:
    from polyhal.hal.scheduler.executable import Segment


@dataclass(slots=True)
class NodeTime:
    """One node over all profiled runs. Times are in nanoseconds."""

    op: str
    module: str
    node: Node | None
    """None for copies at the end of a step, and for recordings whose parts the device does not time."""
    kernels: dict[str, int] = field(default_factory=dict)
    """Names of the kernels, with the time of each."""
    launches: int = 0
    total: int = 0

    def add(self, kernel: str, elapsed: int) -> None:
        """Count one launch."""
        self.kernels[kernel] = self.kernels.get(kernel, 0) + elapsed
        self.launches += 1
        self.total += elapsed


class StepProfile:
    """Times the captured steps that this thread runs in a `with` block, node by node."""

    def __init__(self) -> None:
        self.runs = 0
        self._times: dict[Any, NodeTime] = {}
        self._previous: dispatch.SegmentTimer | None = None

    def __enter__(self) -> Self:
        self._previous, dispatch.thread.timer = dispatch.thread.timer, self
        return self

    def __exit__(self, *exc: object) -> None:
        dispatch.thread.timer = self._previous

    def run(self, segments: Sequence[Segment]) -> None:
        """Run a step once. Called by its program."""
        self.runs += 1
        for segment in segments:
            backend: Any = segment.device.backend
            if not segment.device.features & Feature.PROFILING:
                segment.device.synchronize()
                begun = time.perf_counter_ns()
                segment.run()
                segment.device.synchronize()
                self._time(segment, 0 if len(segment.nodes) == 1 else None, "", time.perf_counter_ns() - begun)
                continue
            backend.start_profiling()
            try:
                segment.run()
            finally:
                events = [e for e in backend.stop_profiling() if e[0] != TRANSFER]
            calls = [0] * len(events) if segment.recorded is None else [x.call for x in segment.recorded.launches]
            for call, (kernel, start, end) in zip(calls, events, strict=True):
                self._time(segment, call, kernel, end - start)

    def _time(self, segment: Segment, call: int | None, kernel: str, elapsed: int) -> None:
        node = None if call is None else segment.nodes[call]
        key = id(segment) if node is None else id(node)
        found = self._times.get(key)
        if found is None:
            op = f"recording of {len(segment.nodes)} ops" if call is None else "copy" if node is None else node.op.name
            module = node.origin.module if node is not None and node.origin is not None else ""
            found = self._times[key] = NodeTime(op, module, node)
        found.add(kernel, elapsed)

    @property
    def nodes(self) -> list[NodeTime]:
        """Every node that ran, the slowest first."""
        return sorted(self._times.values(), key=lambda t: -t.total)

    @property
    def total(self) -> int:
        """Nanoseconds of all nodes in all runs."""
        return sum(t.total for t in self._times.values())

    def modules(self) -> list[tuple[str, int]]:
        """Nanoseconds by module, the slowest first; "" for what belongs to none."""
        found: dict[str, int] = {}
        for t in self._times.values():
            found[t.module] = found.get(t.module, 0) + t.total
        return sorted(found.items(), key=lambda pair: -pair[1])

    def time_of(self, node: Node) -> int | None:
        """Mean nanoseconds of a run in a node of a program's graph; None if it was not timed."""
        found = self._times.get(id(node))
        return None if found is None else found.total // self.runs

    def table(self, limit: int = 30) -> str:
        """Nodes and modules by their mean time in a run, the slowest first."""
        if not self.runs:
            return "no captured step ran"
        whole = self.total or 1
        rows = [
            (f"{t.total / self.runs / 1e3:.1f}", f"{100 * t.total / whole:.1f}", f"{t.launches / self.runs:g}", t.op,
             t.module, ", ".join(k for k in t.kernels if k))
            for t in self.nodes[:limit]
        ]  # fmt: skip
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
    """Rows as lines with columns of equal width, the first `right` of them flush right."""
    table = list(rows)
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    return [
        "  ".join(
            c.rjust(w) if i < right else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in table
    ]
