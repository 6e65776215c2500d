"""Shares of unequal devices: how many rows each gets, from how long they take in captured steps.

From time to time one run is timed: how long each device computes, and waits for its rows, until its gradients are ready. The
lower quartile of several runs (what disturbs a run only makes it slower), by number of rows, gives a line of seconds over rows
for each device; memory limits how many rows it can take. Rows are dealt one by one to the device that would be ready first. A
division is adopted if it promises to be faster by more than a threshold, and ever more rarely, because it needs a recording of
its own. A device that is too slow for any row gets one again after many runs, to be measured: it may have been busy before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from polyhal.hal import dispatch
from polyhal.hal.collectives.collective import Kind
from polyhal.hal.scheduler.cross_device import COLLECTIVE, ENQUEUE, RECEIVE, START
from polyhal.hal.scheduler.timeline import Activity, Timeline, timeline
from polyhal.hal.settings.determinism import are_deterministic_algorithms_enabled

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.ir.graph import Graph, Node
    from polyhal.hal.scheduler.executable import Executable

_WARM_UP = 8
"""Runs after a new division that are not timed: they record, build kernels and fill caches."""
_SAMPLES = 3
"""Timed runs of a division before another is proposed."""
_KEPT = 7
"""Timed runs that count: old ones are forgotten, because speeds change."""
_INTERVAL = 32
"""Runs between timed ones, later on."""
_AGAIN = 4096
"""Runs after which a device without rows is tried again, and later twice as many each time."""
_GAIN = 1.05
"""How much faster another division must promise to be."""
_APART = 4
"""Numbers of rows that differ by less than one part in so many tell too little about the time of a row."""
_USABLE = 0.9
"""Of the memory that a device has left."""


class Decision(NamedTuple):
    """A division that was adopted, and why."""

    rows: tuple[int, ...]
    """Of a batch, by device."""
    seconds: tuple[float, ...]
    """That each device needed for its rows before."""
    gain: float
    """How much faster the step was expected to become: 1.2 means 20 %."""
    text: str


@dataclass(frozen=True, slots=True)
class _Tick:
    """What a captured step does before each run: it notes that the balancer's model runs, with so many rows per device."""

    balancer: Balancer
    counts: tuple[int, ...]

    def __call__(self) -> None:
        self.balancer.tick()


class Balancer:
    """Measures the devices of a model, and calls `adopt` with another division of the rows when that is worth it.

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
        """Runs until the next division is considered."""
        self._again = _AGAIN
        """Runs until devices without rows are tried again."""
        self._tried: frozenset[int] = frozenset()
        """The devices that are tried now."""
        self._rows: tuple[int, ...] = ()
        """The present division."""
        self._most: tuple[int, ...] = ()
        """How many rows the memory of each device can take."""
        self._executables: list[Executable] = []
        self.decisions: list[Decision] = []
        """What was adopted so far."""

    def watch(self, counts: tuple[int, ...]) -> None:
        """Note that the model runs with so many rows per device, in a step that is being recorded or runs now."""
        if dispatch.thread.grad_enabled:
            dispatch.thread.executor.on_replay(_Tick(self, counts))

    def tick(self) -> None:
        """A run begins: time it if it is due."""
        self._runs += 1
        early = _WARM_UP < self._runs <= _WARM_UP + _SAMPLES
        if (early or self._runs % _INTERVAL == 0) and dispatch.thread.worker_timer is None:
            dispatch.thread.worker_timer = self

    def run(self, executable: Executable) -> None:
        """Time one run of a step. Called by its executable."""
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
        """Note how long each device took for its rows until its gradients were ready."""
        self._rows = tuple(rows)
        for times, n, t in zip(self._times, rows, seconds, strict=True):
            if n:
                times[n] = times.pop(n, deque(maxlen=_KEPT))  # the latest comes last
                times[n].append(t)

    def _consider(self, calls: int) -> None:
        """Adopt another division if it is time for one. A run calls the model so many times."""
        before, tried = self._rows, self._tried
        self._tried = frozenset()
        due = tried or not self.decisions or self._runs >= self._rest
        if due and self.rebalance(1.0 if tried else _GAIN):
            if tried:  # a few rows tell little: a device that can take many more is measured with these at once
                self._tried = frozenset(i for i in tried if self.decisions[-1].rows[i] > 2 * before[i])
                self._rest = _INTERVAL
        elif self._runs >= self._again and not are_deterministic_algorithms_enabled():
            self._try_idle(calls)

    def _try_idle(self, calls: int) -> None:
        """Give devices without rows one in each call, taken from those with the most."""
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
            self._times[i] = {}  # what was measured before says nothing
        self._divide(Decision(tuple(rows), tuple(seconds), 1.0, f"of {sum(rows)} rows, {names}, to be measured"))

    def rebalance(self, gain: float = _GAIN) -> bool:
        """Adopt the best division that is known if it promises to be faster by the factor `gain`. Returns whether it was."""
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
        """Give back the memory of steps with earlier divisions."""
        for other in self._executables:
            if other is not executable:
                other.release()
        self._executables = [executable]


def deal(total: int, lines: Sequence[tuple[float, float]], most: Sequence[int] | None = None) -> tuple[int, ...]:
    """Divide rows among devices so that the last one is ready as early as possible.

    `lines` are (seconds, seconds per row) of each device; one that gets no row takes no time. `most` limits the rows of each;
    what all of them together cannot take goes where there is time.
    """
    rows = [0] * len(lines)
    for _ in range(total):
        free = [i for i in range(len(lines)) if most is None or rows[i] < most[i]] or range(len(lines))
        rows[min(free, key=lambda i: (_seconds(lines[i], rows[i] + 1), i))] += 1
    return tuple(rows)


def _seconds(line: tuple[float, float], rows: int) -> float:
    return line[0] + line[1] * rows if rows else 0.0


def _line(times: dict[int, deque[float]]) -> tuple[float, float]:
    """Seconds, and seconds per row, of the line through the times of the two latest numbers of rows.

    The line starts at the origin if there is one number, or if it would fall, or begin below.
    """
    (n, latest), *earlier = [(rows, _typical(t)) for rows, t in reversed(times.items())]
    for m, before in earlier[:1]:
        if abs(n - m) * _APART < n:  # noise would turn the line
            break
        slope = (latest - before) / (n - m)
        start = latest - slope * n
        if slope > 0 and start >= 0:
            return start, slope
    return 0.0, latest / n


def _typical(seconds: Iterable[float]) -> float:
    """The lower quartile."""
    ordered = sorted(seconds)
    return ordered[len(ordered) // 4]


def _ready(run: Timeline, devices: Sequence[Device]) -> list[float]:
    """Seconds that each device computed, and waited for its rows, until it gave its last gradients."""
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
    """Whether a node receives a part of an argument, which takes as long as the link does."""
    if node.op is not RECEIVE:
        return False
    send = graph.nodes[graph.producer_index(node.value(0))]
    return graph.root(send.value(0)) < graph.inputs


def _most_rows(executable: Executable, device: Device, rows: int) -> int:
    """How many rows the memory of a device can take, if what a step needs for `rows` grows with them."""
    used = next((m for m in executable.memory_report().devices if m.device == device.name), None)
    if used is None or not rows:
        return 1 << 62
    stats = device.memory_stats()
    left = device.pool.available + stats.reserved - stats.used
    needed = used.arena.nbytes + used.arguments.nbytes
    return rows + int(_USABLE * max(left, 0) * rows / needed) if needed else 1 << 62
