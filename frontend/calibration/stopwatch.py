"""Times captured steps on a device: by the clock of the host, or on a simulated device by its virtual time.

The shortest time counts: what else runs on the machine can only make a step slower. A loaded machine is slow for seconds at a
time, so steps are timed in several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from polyhal.hal.device import Device
from polyhal.hal.diagnostics.measurements import MeasuredCall
from polyhal.hal.ir.graph import Graph, Node, Value
from polyhal.hal.layout import Spec
from polyhal.steps.jit import Jitted, jit

Step = Callable[[], object]
_RUNS_BEFORE = 4
"""A captured step is recorded twice before it is only replayed."""
_SECONDS = 0.004
"""Of one sample: so many replays that the wait at the end does not matter, and so few that some samples are not interrupted."""
_SAMPLES = 8
_PAUSE = 0.001
"""Between samples: threads of a driver that spin go to sleep, and other programs get their turn."""


class Stopwatch:
    """Times steps on one device."""

    def __init__(self, device: Device, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` gives seconds; it may be `time.process_time` for a processor of one core, on which others work, too."""
        self.device = device
        self._clock = clock
        self.is_virtual = hasattr(device.backend, "virtual_time")

    def now(self) -> float:
        """Seconds: of virtual time on a simulated device."""
        backend: Any = self.device.backend
        return backend.virtual_time / 1e9 if self.is_virtual else self._clock()

    def replays(self, step: Step) -> float:
        """Seconds per replay, of many in a row: the longer of what host and device need."""
        if self.is_virtual:  # without what one replay takes more because the host waits for it
            return (self._round(step, 5) - self._round(step, 1)) / 4
        number = max(1, round(_SECONDS / max(self._round(step, 2) / 2, 1e-7)))
        return self.shortest(lambda: self._round(step, number)) / number

    def enqueue(self, step: Step) -> float:
        """Seconds of the host to submit a replay to a device that has nothing to do."""

        def once() -> float:
            self.device.synchronize()
            begin = self.now()
            step()
            return self.now() - begin

        return self.shortest(once, 4 * _SAMPLES)

    def turnaround(self, step: Step) -> float:
        """Seconds from a replay's submission until the host that waits for it goes on."""
        return self.shortest(lambda: self._round(step, 1), 4 * _SAMPLES)

    def shortest(self, once: Callable[[], float], samples: int = _SAMPLES) -> float:
        """The shortest time of some samples; virtual time is the same at each."""
        if self.is_virtual:
            return once()
        times = []
        for _ in range(samples):
            times.append(once())
            time.sleep(_PAUSE)
        return min(times)

    def _round(self, step: Step, number: int) -> float:
        self.device.synchronize()
        begin = self.now()
        for _ in range(number):
            step()
        self.device.synchronize()
        return self.now() - begin


def captured(run: Step) -> Jitted[[], object]:
    """Capture a function, and run it until it is only replayed."""
    step = jit(run)
    for _ in range(_RUNS_BEFORE):
        step()
    return step


def calls_of(step: Jitted[[], object]) -> tuple[MeasuredCall, ...]:
    """What a captured step runs on the device, fused as passes left it; views are no calls.

    Ops that were broken up into others, because the device has no kernel for them, stand for all of these together.
    """
    recorded, run = (_calls(graph) for graph in (step.steps[-1].graph, step.steps[-1].executable.graph))
    return recorded if len(run) > len(recorded) else run


def _calls(graph: Graph) -> tuple[MeasuredCall, ...]:
    return tuple(_call(graph, node) for node in graph.nodes if not graph.is_view(node))


def _call(graph: Graph, node: Node) -> MeasuredCall:
    inputs = (graph.specs[x.index] if isinstance(x, Value) else None for x in node.inputs)
    tensors = tuple(s if isinstance(s, Spec) else None for s in inputs)
    return MeasuredCall(node.op.name, tensors, tuple(graph.tensor(i) for i in node.outputs), node.bound)
