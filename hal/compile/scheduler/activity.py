"""Activity of devices in runs of captured steps: times of computation, waiting and communication, and bytes over each link."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from polyhal.hal.collectives.traffic import bus_elements, traffic
from polyhal.hal.compile.scheduler.cross_device import represents_collective
from polyhal.hal.compile.scheduler.profile import StepProfile
from polyhal.hal.compile.scheduler.timeline import Timeline, timeline
from polyhal.hal.core import dispatch

if TYPE_CHECKING:
    from polyhal.hal.compile.ir.graph import Node
    from polyhal.hal.compile.scheduler.executable import Executable
    from polyhal.hal.device import Device


class StepActivity:
    """Timer of captured steps on several devices, for runs by this thread in a `with` block. `str` shows a table.

    Only runs of the step that ran last are kept. Devices run concurrently, as in other runs, but are synchronized at
    cross-device ops, so runs are a little slower. The second run is excluded from the times: it is profiled, one device after
    the other, for the time of each family of ops and of each module.
    """

    def __init__(self) -> None:
        self.runs: list[Timeline] = []
        self.profile: StepProfile | None = None
        """Profile of the second run; None before it."""
        self._previous: dispatch.WorkerTimer | None = None

    def __enter__(self) -> Self:
        self._previous, dispatch.thread.worker_timer = dispatch.thread.worker_timer, self
        return self

    def __exit__(self, *exc: object) -> None:
        dispatch.thread.worker_timer = self._previous

    def run(self, executable: Executable) -> None:
        """Time one run of a step. Called by its executable."""
        if executable.workers is None:
            executable.run_once()
            return
        if self.runs and self.runs[-1].executable is not executable:
            self.runs.clear()
            self.profile = None
        if self.runs and self.profile is None:
            with StepProfile() as self.profile:
                executable.run_once()
            return
        self.runs.append(timeline(executable))

    def to_json(self) -> dict[str, Any]:
        """Return the medians of the runs as plain data: times in seconds, sizes in bytes.

        `idle` of a device is all time without computation, `waiting` included. `families` and `modules` count its ops;
        `family_seconds` and `module_seconds` are from the profiled run, the slowest first, and empty before it.
        """
        if not self.runs:
            return {"runs": 0, "devices": [], "links": [], "collectives": []}
        executable = self.runs[-1].executable
        return {
            "runs": len(self.runs),
            "devices": [self._device(d) for d in executable.devices],
            "links": [
                {"from": a.name, "to": b.name, "bytes": n} for (a, b), n in sorted(_links(executable).items(), key=str)
            ],
            "collectives": list(self._collectives()),
        }

    def _device(self, device: Device) -> dict[str, Any]:
        virtual = any(s.virtual for s in self.runs[-1].of(device))
        elapsed = _median(run.elapsed[virtual] for run in self.runs)
        busy = _median(run.busy(device) for run in self.runs)
        waited = _median(run.waited(device) for run in self.runs)
        nodes = [n for n, d in self.runs[-1].executable.placement().nodes if d is device]
        return {
            "device": device.name,
            "clock": "simulated" if virtual else "host",
            "elapsed": elapsed,
            "computing": busy,
            "waiting": waited,
            "idle": max(elapsed - busy, 0.0),
            "ops": len(nodes),
            "families": dict(Counter(n.op.family for n in nodes).most_common()),
            "modules": dict(Counter(_module(n) for n in nodes).most_common()),
            "family_seconds": self._seconds(nodes, lambda n: n.op.family),
            "module_seconds": self._seconds(nodes, _module),
        }

    def _seconds(self, nodes: Iterable[Node], key: Callable[[Node], str]) -> dict[str, float]:
        """Sum the seconds of the timed nodes in the profiled run by their `key`."""
        totals: Counter[str] = Counter()
        for node in nodes:
            elapsed = self.profile.time_of(node) if self.profile is not None else None
            if elapsed is not None:
                totals[key(node)] += elapsed
        return {name: n * 1e-9 for name, n in totals.most_common()}

    def _collectives(self) -> Iterable[dict[str, Any]]:
        """Yield the median figures of collectives by kind and size, the largest first."""
        times: dict[tuple[str, int, float], list[float]] = {}
        for run in self.runs:
            for span in run.spans:
                (node, *_) = span.nodes
                if node is not None and represents_collective(node):
                    collective, itemsize = node.params[0], node.params[2].itemsize
                    key = (collective.kind.value, collective.total * itemsize, bus_elements(collective) * itemsize)
                    times.setdefault(key, []).append(span.busy * 1e-9)
        for (kind, nbytes, bus), seconds in sorted(times.items(), key=lambda item: -item[0][1]):
            median = statistics.median(seconds)
            count = len(seconds) / len(self.runs)
            rate = bus / median if median else 0.0
            yield {"kind": kind, "bytes": nbytes, "count": count, "seconds": median, "bus_bandwidth": rate}

    def save_chrome_trace(self, path: str | Path) -> None:
        """Write the last run in the Trace Event Format, which chrome://tracing and Perfetto show."""
        rows = [
            {
                "name": s.activity.value if len(s.nodes) > 1 or s.nodes[0] is None else s.nodes[0].op.name,
                "cat": s.activity.value,
                "ph": "X",
                "ts": s.start / 1e3,
                "dur": (s.end - s.start) / 1e3,
                "pid": "simulated time" if s.virtual else "host's time",
                "tid": s.worker,
                "args": {"ops": len(s.nodes), "busy_us": s.busy / 1e3},
            }
            for s in (self.runs[-1].spans if self.runs else ())
        ]
        Path(path).write_text(json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}), encoding="utf-8")

    def __str__(self) -> str:
        facts = self.to_json()
        if not facts["runs"]:
            return "no captured step ran on several devices"
        groups, text = (
            (("families", "modules"), str) if self.profile is None else (("family_seconds", "module_seconds"), _ms)
        )
        devices = [
            (
                d["device"],
                f"{d['ops']}",
                _ms(d["computing"]),
                _ms(d["waiting"]),
                _ms(d["idle"]),
                *(_first(d[group], text) for group in groups),
            )
            for d in facts["devices"]
        ]
        elapsed = ", ".join(
            dict.fromkeys(f"{_ms(d['elapsed'])} ms by the {d['clock']} clock" for d in facts["devices"])
        )
        most = ("most ops", "most ops in") if self.profile is None else ("most ms", "most ms in")
        head = [("device", "ops", "computing ms", "waiting ms", "idle ms", *most)]
        lines = [f"{facts['runs']} runs, {elapsed}", *_aligned(head + devices)]
        links = [(x["from"], x["to"], _size(x["bytes"])) for x in facts["links"]]
        if links:
            lines += ["", *_aligned([("from", "to", "in each run"), *links])]
        collectives = [
            (x["kind"], _size(x["bytes"]), f"{x['count']:g}", _ms(x["seconds"]), f"{x['bus_bandwidth'] / 1e9:.2f}")
            for x in facts["collectives"]
        ]
        if collectives:
            lines += ["", *_aligned([("collective", "size", "times", "ms each", "bus GB/s"), *collectives])]
        return "\n".join(lines)


def _links(executable: Executable) -> Counter[tuple[Device, Device]]:
    """Return the bytes that a run moves from device to device of this process, by transfers and collectives."""
    links = Counter(executable.placement().traffic)
    for node in executable.graph.nodes:
        if represents_collective(node):
            collective, communicator, dtype, *_ = node.params
            own = dict(enumerate(communicator.devices, communicator.first))
            for (i, j), elements in traffic(collective).items():
                if i in own and j in own:
                    links[own[i], own[j]] += elements * dtype.itemsize
    return links


def _module(node: Node) -> str:
    return (node.origin.module if node.origin is not None else "") or "-"


def _median(nanoseconds: Iterable[int]) -> float:
    return statistics.median(nanoseconds) * 1e-9


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"


def _first(amounts: dict[str, Any], text: Callable[[Any], str]) -> str:
    return ", ".join(f"{name} {text(n)}" for name, n in list(amounts.items())[:3])


def _size(nbytes: float) -> str:
    if nbytes < 2**10:
        return f"{nbytes:.0f} B"
    return f"{nbytes / 2**20:.2f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.2f} KiB"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
