"""The profiler: host time per op, and device time per kernel on backends with timestamps.

A profile replaces the thread's executor inside its block, so it has no cost outside.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.host_work import HOST_WORK, HostCalls
from polyhal.hal.device import Device
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.protocol import SupportsProfiling

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Inputs, ParamValues
    from polyhal.hal.ops.tensor_like import Numeric


@dataclass(slots=True)
class Row:
    """The calls of one op or of one kernel. Times are in nanoseconds."""

    name: str
    calls: int = 0
    total: int = 0
    slowest: int = 0
    flops: int = 0

    def add(self, elapsed: int, flops: int = 0) -> None:
        """Count one call of `elapsed` nanoseconds."""
        self.calls += 1
        self.total += elapsed
        self.slowest = max(self.slowest, elapsed)
        self.flops += flops


@dataclass(slots=True)
class TraceEvent:
    """One op call or one kernel: name, start and duration in nanoseconds, on the host's or the device's clock."""

    name: str
    start: int
    duration: int
    device: str = ""


@dataclass(slots=True)
class Profile:
    """A running or finished profile: a context manager.

    Host time of an op is the time to plan and enqueue it, not to run it. Device times come from the backend's timestamps.
    """

    devices: list[Device] = field(default_factory=list)
    ops: dict[str, Row] = field(default_factory=dict)
    kernels: dict[str, Row] = field(default_factory=dict)
    events: list[TraceEvent] = field(default_factory=list)
    host_work: dict[str, HostCalls] = field(default_factory=dict)
    """Ops that ran in NumPy on the host, and the bytes that they moved, on all threads."""
    elapsed: int = 0
    _host_work: dict[str, HostCalls] = field(default_factory=dict)
    _begun: int = 0
    _previous: dispatch.Executor = dispatch.EAGER
    _active: list[Device] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._previous = dispatch.thread.executor
        for device in self.devices:
            self._watch(device)
        dispatch.thread.executor = _TimingExecutor(self._previous, self)
        self._host_work = HOST_WORK.counts()
        self._begun = time.perf_counter_ns()
        return self

    def add(self, event: TraceEvent, device: Device, flops: int) -> None:
        """Count one op call on `device`."""
        if device not in self._active:
            self._watch(device)
        self.ops.setdefault(event.name, Row(event.name)).add(event.duration, flops)
        self.events.append(event)

    def _watch(self, device: Device) -> None:
        self._active.append(device)
        if isinstance(device.backend, SupportsProfiling):
            device.backend.start_profiling()

    def __exit__(self, *exc: Any) -> None:
        dispatch.thread.executor = self._previous
        for device in self._active:
            device.synchronize()
            if isinstance(device.backend, SupportsProfiling):
                for name, start, end in device.backend.stop_profiling():
                    self.kernels.setdefault(name, Row(name)).add(end - start)
                    self.events.append(TraceEvent(name, start, end - start, device.name))
        self.elapsed = time.perf_counter_ns() - self._begun
        self.host_work = HOST_WORK.since(self._host_work)
        self._active.clear()

    def table(self, limit: int = 20) -> str:
        """Return a table of ops by host time and of kernels by device time, the slowest first.

        GFLOP counts the additions and multiplications of ops with a cost rule.
        """
        lines = [f"{self.elapsed / 1e6:.2f} ms in total"]
        lines += _table("op", "host ms", self.ops.values(), limit)
        if self.kernels:
            lines += ["", *_table("kernel", "device ms", self.kernels.values(), limit)]
        if self.host_work:
            lines += ["", "on the host, in NumPy:"]
            lines += [f"  {op}  {n} calls, {nbytes} bytes moved" for op, (n, nbytes) in sorted(self.host_work.items())]
        return "\n".join(lines)

    def save_chrome_trace(self, path: str | Path) -> None:
        """Write the events in the Trace Event Format, which chrome://tracing and Perfetto display."""
        rows = [
            {
                "name": e.name,
                "ph": "X",
                "ts": e.start / 1e3,
                "dur": e.duration / 1e3,
                "pid": e.device or "host",
                "tid": e.device or "ops",
            }
            for e in self.events
        ]
        Path(path).write_text(json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}), encoding="utf-8")

    def __str__(self) -> str:
        return self.table()


class _TimingExecutor(dispatch.ForwardingExecutor):
    """Times the ops that it forwards, and copies, fills and transfers under these names."""

    __slots__ = ("_profile",)

    replays_graphs = False

    def __init__(self, base: dispatch.Executor, profile: Profile) -> None:
        super().__init__(base)
        self._profile = profile

    def apply(self, op: OpDef, inputs: Inputs, params: ParamValues, device: Device | None = None) -> Any:
        begin = time.perf_counter_ns()
        result = self.base.apply(op, inputs, params, device)
        first = result[0] if isinstance(result, tuple) else result
        self._add(op.name, begin, first.device, flops_of(op, inputs, params, result))
        return result

    def apply_into(self, op: OpDef, inputs: Inputs, params: ParamValues, outs: tuple[dispatch.Array, ...]) -> None:
        begin = time.perf_counter_ns()
        self.base.apply_into(op, inputs, params, outs)
        self._add(op.name, begin, outs[0].device, flops_of(op, inputs, params, outs))

    def overwrite(self, target: dispatch.Array, value: Numeric) -> None:
        begin = time.perf_counter_ns()
        self.base.overwrite(target, value)
        self._add("copy" if hasattr(value, "ref") else "fill", begin, target.device)

    def transfer(self, x: dispatch.Array, device: Device, non_blocking: bool = False) -> Any:
        begin = time.perf_counter_ns()
        result = self.base.transfer(x, device, non_blocking)
        self._add("transfer", begin, device)
        return result

    def _add(self, name: str, begin: int, device: Device, flops: int = 0) -> None:
        self._profile.add(TraceEvent(name, begin, time.perf_counter_ns() - begin), device, flops)


def flops_of(op: Any, inputs: Inputs, params: ParamValues, result: Any) -> int:
    """Return the additions and multiplications of an op's call by its cost rule; 0 without one."""
    if op.flops is None:
        return 0
    specs = tuple(x.ref.spec if hasattr(x, "ref") else None for x in inputs)
    outs = tuple(r.ref.spec for r in (result if isinstance(result, tuple) else (result,)))
    return int(op.flops(specs, outs, op.bind(params))) if any(isinstance(s, Spec) for s in specs) else 0


def _table(kind: str, unit: str, rows: Iterable[Row], limit: int) -> list[str]:
    ordered = sorted(rows, key=lambda r: -r.total)
    whole = sum(r.total for r in ordered) or 1
    width = max([len(kind), *(len(r.name) for r in ordered[:limit])])
    counted = any(r.flops for r in ordered)
    title = f"{kind:<{width}}  {'calls':>7}  {unit:>10}  {'%':>5}  {'mean us':>9}  {'max us':>9}"
    lines = [f"{title}  {'GFLOP':>10}" if counted else title]
    for r in ordered[:limit]:
        line = (
            f"{r.name:<{width}}  {r.calls:>7}  {r.total / 1e6:>10.3f}  {100 * r.total / whole:>5.1f}"
            f"  {r.total / r.calls / 1e3:>9.1f}  {r.slowest / 1e3:>9.1f}"
        )
        flops = f"  {r.flops / 1e9:>10.4g}" if r.flops else ""
        lines.append(line + flops)
    if len(ordered) > limit:
        lines.append(f"... and {len(ordered) - limit} more")
    return lines


@top_level
def profile(*devices: Device) -> Profile:
    """Profile the ops of this thread inside a `with` block. Devices used inside the block are added to `devices`."""
    return Profile(list(devices))
