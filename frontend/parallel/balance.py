"""Load balancing among unequal devices: rows of a batch per device, chosen from timed runs of captured steps.

A run is timed now and then: the seconds that each device computes and waits for its rows until its gradients are ready. The
lower quartile of several runs (disturbances only make a run slower) by number of rows fits a line of seconds over rows for
each device; memory limits its rows. Rows are assigned one by one to the device that would finish first. A new division is
adopted if its predicted speed-up exceeds a threshold, and ever more rarely, because it requires a recording of its own. A
device that is too slow for any row receives one again after many runs, to be measured: it may have been busy before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal.collectives.collective import Kind
from polyhal.hal.compile.scheduler.cross_device import COLLECTIVE, ENQUEUE, RECEIVE, START
from polyhal.hal.compile.scheduler.timeline import Activity, Timeline, timeline
from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.determinism import are_deterministic_algorithms_enabled

if TYPE_CHECKING:
    from polyhal.hal.compile.ir.graph import Graph, Node
    from polyhal.hal.compile.scheduler.executable import Executable
    from polyhal.hal.device import Device

_WARM_UP = 8
"""Runs after a new division that are not timed: they record, compile kernels and fill caches."""
_SAMPLES = 3
"""Timed runs of a division before another is proposed."""
_KEPT = 7
"""Timed runs per number of rows that are kept: older ones are dropped, because speeds change."""
_INTERVAL = 32
"""Runs between timed ones after the first samples."""
_AGAIN = 4096
"""Runs after which a device without rows is tried again; doubled after each attempt."""
_GAIN = 1.05
"""Minimum predicted speed-up for which a division is adopted."""
_APART = 4
"""Row counts that differ by less than one part in this many are too close to estimate the time per row."""
_USABLE = 0.9
"""Fraction of a device's free memory that rows may use."""


class Decision(NamedTuple):
    """A division that was adopted, and why."""

    rows: tuple[int, ...]
    """Rows of a batch, by device."""
    seconds: tuple[float, ...]
    """Seconds that each device took for its rows before."""
    gain: float
    """Predicted speed-up of the step: 1.2 means 20 %."""
    text: str


@dataclass(frozen=True, slots=True)
class _Tick:
    """Replay action of a captured step: notifies the balancer that its model runs, with these rows per device."""

    balancer: Balancer
    counts: tuple[int, ...]

    def __call__(self) -> None:
        self.balancer.tick()


class Balancer:
    """Measures the devices of a model, and calls `adopt` with another division of the rows if that is predicted to be faster.

    Nothing is adopted while `polyhal.use_deterministic_algorithms(True)` is in force.
    """

    def __init__(self, devices: Sequence[Device], adopt: Callable[[tuple[int, ...]], None]) -> None:
        self._devices = tuple(devices)
        self._adopt = adopt
        self._times: list[dict[int, deque[float]]] = [{} for _ in devices]
        """Seconds until a device's gradients are ready, by number of rows."""
        self._runs = 0
        """Runs since the last division."""
        self._rest = _INTERVAL
        """Number of the run that considers the next division."""
        self._again = _AGAIN
        """Number of the run that tries devices without rows again."""
        self._tried: frozenset[int] = frozenset()
        """Indices of the devices that are being tried."""
        self._rows: tuple[int, ...] = ()
        """Rows per device in the latest timed run."""
        self._most: tuple[int, ...] = ()
        """Maximum rows per device that fit its memory."""
        self._executables: list[Executable] = []
        self.decisions: list[Decision] = []
        """Divisions that were adopted so far."""

    def watch(self, counts: tuple[int, ...]) -> None:
        """Note that the model runs with these rows per device, in a step that is being recorded or that runs now."""
        if dispatch.thread.grad_enabled:
            dispatch.thread.executor.on_replay(_Tick(self, counts))

    def tick(self) -> None:
        """Count the start of a run, and time it if it is due."""
        self._runs += 1
        early = _WARM_UP < self._runs <= _WARM_UP + _SAMPLES
        if (early or self._runs % _INTERVAL == 0) and dispatch.thread.worker_timer is None:
            dispatch.thread.worker_timer = self

    def run(self, executable: Executable) -> None:
        """Time one run of a step. The step's executable calls this."""
        dispatch.thread.worker_timer = None
        ticks = [a for a in executable.captured.replay_actions if isinstance(a, _Tick) and a.balancer is self]
        if not ticks:
            executable.run_once()
            return
        rows = tuple(map(sum, zip(*(t.counts for t in ticks), strict=True)))
        if executable.workers is None:  # one device has all rows and parameters
            executable.run_once()
            self._rows = rows
        else:
            self.note(rows, _ready(timeline(executable), self._devices))
        self._most = tuple(_most_rows(executable, d, n) for d, n in zip(self._devices, rows, strict=True))
        self._keep(executable)
        if self._runs >= _WARM_UP + _SAMPLES:
            self._consider(len(ticks))

    def note(self, rows: Sequence[int], seconds: Sequence[float]) -> None:
        """Record how long each device took for its rows until its gradients were ready."""
        self._rows = tuple(rows)
        for times, n, t in zip(self._times, rows, seconds, strict=True):
            if n:
                times[n] = times.pop(n, deque(maxlen=_KEPT))  # the latest comes last
                times[n].append(t)

    def _consider(self, calls: int) -> None:
        """Adopt another division if one is due. `calls` is the number of times that a run calls the model."""
        before, tried = self._rows, self._tried
        self._tried = frozenset()
        due = tried or not self.decisions or self._runs >= self._rest
        if due and self.rebalance(1.0 if tried else _GAIN):
            if tried:  # few rows show little: measure a device that can take many more with the larger number at once
                self._tried = frozenset(i for i in tried if self.decisions[-1].rows[i] > 2 * before[i])
                self._rest = _INTERVAL
        elif self._runs >= self._again and not are_deterministic_algorithms_enabled():
            self._try_idle(calls)

    def _try_idle(self, calls: int) -> None:
        """Assign one row per call to each idle device, taken from the devices with the most rows."""
        idle = [i for i, n in enumerate(self._rows) if not n]
        rows = list(self._rows)
        for i in idle:
            rows[rows.index(max(rows))] -= calls
            rows[i] = calls
        if not idle or min(rows) < calls:
            return
        self._tried = frozenset(idle)
        self._again *= 2
        seconds = [_seconds(_line(t), n) if n else 0.0 for t, n in zip(self._times, self._rows, strict=True)]
        names = ", ".join(f"{self._devices[i].name} {calls} (was 0)" for i in idle)
        for i in idle:
            self._times[i] = {}  # earlier measurements are out of date
        self._divide(Decision(tuple(rows), tuple(seconds), 1.0, f"of {sum(rows)} rows, {names}, to be measured"))

    def rebalance(self, gain: float = _GAIN) -> bool:
        """Adopt the best known division if its predicted speed-up is at least `gain`. Returns whether it was adopted."""
        if not self._rows or not all(self._times) or are_deterministic_algorithms_enabled():
            return False
        lines = [_line(times) for times in self._times]
        before = [_seconds(line, n) for line, n in zip(lines, self._rows, strict=True)]
        rows = deal(sum(self._rows), lines, self._most or None)
        now = max(_seconds(line, n) for line, n in zip(lines, rows, strict=True))
        if rows == self._rows or now <= 0 or max(before) < gain * now:
            return False
        self._rest *= 2
        self._divide(self._decision(rows, before, max(before) / now))
        return True

    def _divide(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self._runs = 0
        self._adopt(decision.rows)

    def _decision(self, rows: tuple[int, ...], seconds: Sequence[float], gain: float) -> Decision:
        parts = ", ".join(
            f"{d.name} {n} (was {m}, {1e3 * s:.1f} ms)"
            for d, n, m, s in zip(self._devices, rows, self._rows, seconds, strict=True)
        )
        text = f"of {sum(rows)} rows, {parts}; gradients are expected {100 * (gain - 1):.0f} % sooner"
        return Decision(rows, tuple(seconds), gain, text)

    def _keep(self, executable: Executable) -> None:
        """Release the memory of steps with earlier divisions."""
        for other in self._executables:
            if other is not executable:
                other.release()
        self._executables = [executable]


def deal(total: int, lines: Sequence[tuple[float, float]], most: Sequence[int] | None = None) -> tuple[int, ...]:
    """Divide rows among devices so that the last one finishes as early as possible.

    `lines` are (seconds, seconds per row) of each device; a device without rows takes no time. `most` limits the rows per
    device; rows beyond the sum of the limits are assigned by time only.
    """
    rows = [0] * len(lines)
    for _ in range(total):
        free = [i for i in range(len(lines)) if most is None or rows[i] < most[i]] or range(len(lines))
        rows[min(free, key=lambda i: (_seconds(lines[i], rows[i] + 1), i))] += 1
    return tuple(rows)


def _seconds(line: tuple[float, float], rows: int) -> float:
    return line[0] + line[1] * rows if rows else 0.0


def _line(times: dict[int, deque[float]]) -> tuple[float, float]:
    """Fit a line through the times of the two latest row counts: returns (seconds, seconds per row).

    The line passes through the origin if there is only one row count, or if the slope or the start would be negative.
    """
    (n, latest), *earlier = [(rows, _typical(t)) for rows, t in reversed(times.items())]
    for m, before in earlier[:1]:
        if abs(n - m) * _APART < n:  # noise would dominate the slope
            break
        slope = (latest - before) / (n - m)
        start = latest - slope * n
        if slope > 0 and start >= 0:
            return start, slope
    return 0.0, latest / n


def _typical(seconds: Iterable[float]) -> float:
    """Return the lower quartile."""
    ordered = sorted(seconds)
    return ordered[len(ordered) // 4]


def _ready(run: Timeline, devices: Sequence[Device]) -> list[float]:
    """Return the seconds that each device computed, and waited for its rows, until its last gradients were ready."""
    graph = run.executable.graph
    seconds = []
    for device in devices:
        total = until = 0
        for span in run.of(device):
            (node, *_) = span.nodes
            if span.activity is Activity.COMPUTE or (node is not None and _brings_rows(graph, node)):
                total += span.busy
            if node is not None and node.op in (START, ENQUEUE):
                made = [node] if node.op is ENQUEUE else graph.users(node.outputs[0])
                if any(n.op in (COLLECTIVE, ENQUEUE) and n.params[0].kind is Kind.REDUCE_SCATTER for n in made):
                    until = total
        seconds.append((until or total) * 1e-9)
    return seconds


def _brings_rows(graph: Graph, node: Node) -> bool:
    """Return whether a node receives a part of an argument: the link's speed determines its time."""
    if node.op is not RECEIVE:
        return False
    send = graph.nodes[graph.producer_index(node.value(0))]
    return graph.root(send.value(0)) < graph.inputs


def _most_rows(executable: Executable, device: Device, rows: int) -> int:
    """Estimate how many rows fit a device's memory, if the memory of a step for `rows` rows grows in proportion."""
    used = next((m for m in executable.memory_report().devices if m.device == device.name), None)
    if used is None or not rows:
        return 1 << 62
    stats = device.memory_stats()
    left = device.pool.available + stats.reserved - stats.used
    needed = used.arena.nbytes + used.arguments.nbytes
    return rows + int(_USABLE * max(left, 0) * rows / needed) if needed else 1 << 62
