"""Automatic split of a model into stages, at cuts that minimize the time of the slowest stage.

Costs of ops come from a recording of the model's passes, rates from a short measurement of each device, and memory from the
lifetimes of values. Dynamic programming over contiguous cuts finds the best split for every number of stages. Source:
Narayanan et al., "PipeDream", SOSP 2019, but for synchronous schedules, which keep one version of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.byte_sizes import size_text
from polyhal.hal.device import Device
from polyhal.hal.errors import OutOfMemoryError, message
from polyhal.nn.module import Module
from polyhal.parallel.device_rates import DeviceRates, device_rates
from polyhal.parallel.micro_batches import arguments_of, batch_size, sizes_of, split_rows
from polyhal.parallel.model_trace import ModelTrace
from polyhal.parallel.pipeline import Pipeline
from polyhal.parallel.schedule import ScheduleName, in_flight
from polyhal.tensor import Tensor

_SPARE = 1 / 16
"""Fraction of a device's memory that is reserved for fragmentation."""
_GRADIENTS = 1
"""Bytes of gradients per byte of parameters."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage of a partition."""

    device: Device
    first: str
    """Module at which the stage begins; empty for the beginning of the model."""
    last: str
    """Module at which the last part of the stage begins (see `model_trace`)."""
    seconds: float
    """Predicted seconds of one micro-batch, forward and backward, with its copies."""
    received: int
    """Bytes received per micro-batch in the forward pass."""
    parameters: int
    """Bytes of parameters."""
    memory: int
    """Predicted bytes at the peak, with gradients and optimizer state."""
    available: int
    """Bytes of the device's memory."""


@dataclass(frozen=True, slots=True)
class ModelPartition:
    """Cuts of a model, with a device, predicted time and memory for each stage. `print` shows a table."""

    model: Module
    stages: tuple[StagePlan, ...]
    placement: Mapping[str, int]
    """Stage of each parameter and buffer, by name: the first that reads it."""
    micro_batches: int | Sequence[int]
    schedule: ScheduleName
    seconds: float
    """Predicted seconds of one step without the optimizer."""

    @property
    def cuts(self) -> list[str]:
        """Modules at which all stages but the first begin."""
        return [stage.first for stage in self.stages[1:]]

    @property
    def devices(self) -> list[Device]:
        """Devices of the stages."""
        return [stage.device for stage in self.stages]

    def pipeline(self) -> Pipeline:
        """Move the model's parts to their devices, and return the pipeline that runs them. Raises OutOfMemoryError."""
        return Pipeline(
            self.model, self.devices, self.micro_batches, self.schedule, cuts=self.cuts, placement=self.placement
        )

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("stage", "device", "from", "to", "ms", "receives", "parameters", "memory", "of")
        ]
        for number, s in enumerate(self.stages):
            sizes = (size_text(n) for n in (s.received, s.parameters, s.memory, s.available))
            names = s.device.name, s.first or "the beginning", s.last or "the end"
            rows.append((str(number), *names, f"{s.seconds * 1e3:.3f}", *sizes))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(c.ljust(w) if i < 4 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        slowest = max(s.seconds for s in self.stages)
        busy = sum(s.seconds for s in self.stages) / (len(self.stages) * slowest)
        lines.append(
            f"{self.schedule}, micro_batches={self.micro_batches}: {self.seconds * 1e3:.3f} ms per step predicted, "
            f"stages {100 * busy:.0f} % balanced; ms are of one micro-batch, forward and backward"
        )
        return "\n".join(line.rstrip() for line in lines)


class _Choice(NamedTuple):
    """A split, compared by seconds of a step: for each stage (first part, end of parts, number of its device)."""

    seconds: float
    stages: tuple[tuple[int, int, int], ...]


def partition(
    model: Module,
    inputs: Any,
    devices: Sequence[Device | str],
    micro_batches: int | Sequence[int] = 4,
    *,
    targets: Tensor | None = None,
    loss_function: Callable[[Any, Any], Tensor] | None = None,
    schedule: ScheduleName = "1f1b",
    optimizer_state: float = 2.0,
    rates: Sequence[DeviceRates] | None = None,
) -> ModelPartition:
    """Split a model, unchanged, into stages for `devices`, so that the slowest stage is as fast as memory allows.

    `inputs` are a whole batch (see `Pipeline.forward_backward`), on the model's device. It may be the host, even for a large
    model: the passes are recorded, not run.
    With `targets` and a `loss_function` the loss is part of the last stage. `optimizer_state` is the number of bytes of
    optimizer state per byte of parameters: 2 for Adam, 0 for plain SGD. Devices keep their order; devices that would make a
    step slower are left out. `rates` replace the measured ones. Raises OutOfMemoryError if no split fits, with the memory
    required by the closest one, ShapeError, and ValueError unless there is one of `rates` per device.
    """
    opened = [Device(d) for d in devices]
    sizes = sizes_of(batch_size((inputs, targets)), micro_batches)
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    part, goal = split_rows((arguments_of(inputs), targets), sizes)[largest]
    trace = ModelTrace(model, part, None if loss_function is None else lambda outputs: loss_function(outputs, goal))
    known = [device_rates(d) for d in opened] if rates is None else list(rates)
    if len(known) != len(opened):
        raise ValueError(
            message("partition", f"{len(known)} rates for {len(opened)} devices", expected="one per device")
        )
    search = _Search(trace, known, len(sizes), schedule, optimizer_state)
    choice = search.best()
    names = trace.names
    stages = []
    for number, (i, j, d) in enumerate(choice.stages):
        ahead = in_flight(schedule, number, len(choice.stages), len(sizes))
        stages.append(
            StagePlan(
                opened[d],
                names[i],
                names[j - 1],
                float(search.times[d][i, j]),
                int(search.crossing[i]),
                int(search.parameters[i, j]),
                int(search.needed(ahead)[i, j]),
                known[d].memory,
            )
        )
    begins = [i for i, _, _ in choice.stages]
    placement = {
        name: int(np.searchsorted(begins, readers[0] if readers else 0, side="right")) - 1
        for name, readers in trace.readers.items()
    }
    return ModelPartition(model, tuple(stages), placement, micro_batches, schedule, choice.seconds)


class _Search:
    """Costs of all possible stages, [i, j] for parts i to j - 1, and the search for the best split."""

    def __init__(
        self,
        trace: ModelTrace,
        rates: Sequence[DeviceRates],
        micro_batches: int,
        schedule: ScheduleName,
        optimizer_state: float,
    ) -> None:
        self._rates = rates
        self._micro_batches = micro_batches
        self._schedule = schedule
        self._count = trace.count
        self.crossing = trace.crossing()
        self._kept, self._peak = trace.memory()
        self.parameters, self._state = self._parameter_bytes(trace, optimizer_state)
        self.times = [self._times(trace, r) for r in rates]

    def best(self) -> _Choice:
        """Return the split with the shortest step. Raises OutOfMemoryError."""
        found = [c for p in range(1, min(len(self._rates), self._count) + 1) if (c := self._with(p)) is not None]
        if found:
            return min(found)
        p = min(len(self._rates), self._count)
        shares = [self._with(q, by_memory=True) for q in range(1, p + 1)]
        closest = min(c for c in shares if c is not None)
        needs = []
        for s, (i, j, d) in enumerate(closest.stages):
            ahead = in_flight(self._schedule, s, len(closest.stages), self._micro_batches)
            needs.append(f"{size_text(int(self.needed(ahead)[i, j]))} of {size_text(self._rates[d].memory)}")
        raise OutOfMemoryError(
            message(
                "partition",
                f"no split fits the devices; the closest needs {', '.join(needs)}",
                fix="use more micro-batches or devices, or an optimizer with less state",
            )
        )

    def needed(self, ahead: int) -> np.ndarray:
        """Return the bytes of stages with `ahead` micro-batches in flight."""
        result: np.ndarray = self._state + (ahead - 1) * self._kept + self._peak
        return result

    def _with(self, stages: int, *, by_memory: bool = False) -> _Choice | None:
        """Find the split into `stages` stages with the least time of the slowest stage; None if no split fits.

        With `by_memory`, find the split with the least ratio of required to available memory on the fullest device instead.
        """
        n, devices = self._count, len(self._rates)
        # reached[d][j]: the slowest stage of the best split of parts 0 to j - 1 whose last stage is on device d.
        start = np.full(n + 1, np.inf)
        start[0] = 0.0
        reached: list[np.ndarray] = []
        origins: list[list[tuple[np.ndarray, np.ndarray]]] = []
        for s in range(stages):
            ahead = in_flight(self._schedule, s, stages, self._micro_batches)
            needed = self.needed(ahead)
            now, origin = [], []
            for d in range(devices):
                if s:
                    before = np.array([reached[e] for e in range(d)]) if d else np.full((1, n + 1), np.inf)
                    which, previous = before.argmin(0), before.min(0)
                else:
                    which, previous = np.zeros(n + 1, np.int64), start
                share = needed / max(self._rates[d].memory * (1 - _SPARE), 1)
                own = self.times[d] if not by_memory else np.where(np.isfinite(self.times[d]), share, np.inf)
                cost = np.maximum(previous[:, None], own)
                if not by_memory:
                    cost = np.where(share <= 1, cost, np.inf)
                now.append(cost.min(0))
                origin.append((cost.argmin(0), which))
            reached = now
            origins.append(origin)
        d = int(np.argmin([r[n] for r in reached]))
        slowest = float(reached[d][n])
        if not np.isfinite(slowest):
            return None
        chosen, j = [], n
        for s in range(stages - 1, -1, -1):
            cuts, which = origins[s][d]
            i = int(cuts[j])
            chosen.append((i, j, d))
            d, j = int(which[i]), i
        rounds = 1 if by_memory else self._micro_batches + stages - 1
        return _Choice(rounds * slowest, tuple(reversed(chosen)))

    def _times(self, trace: ModelTrace, rates: DeviceRates) -> np.ndarray:
        """Return the seconds of all stages on one device: kernels, and copies of received and sent values in both passes."""
        own = np.zeros(self._count + 1)
        for cost in trace.costs:
            own[cost.part + 1] += rates.seconds(cost.flops, cost.nbytes)
        until = np.cumsum(own)
        copies = 2 * (np.array([*self.crossing[: self._count], 0]) / rates.link + rates.latency)
        copies[0] = copies[-1] = 0.0
        seconds = until[None, :] - until[:, None] + copies[:, None] + copies[None, :]
        ordered = np.arange(self._count + 1)
        result: np.ndarray = np.where(ordered[:, None] < ordered[None, :], seconds, np.inf)
        return result

    def _parameter_bytes(self, trace: ModelTrace, optimizer_state: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes of the parameters that stages own, and of all persistent state, including replicas."""
        n = self._count
        held, state = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1))
        starts, ends = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
        for name, readers in trace.readers.items():
            nbytes, trained = trace.state_bytes[name], trace.trainable[name]
            home = readers[0] if readers else 0
            here = (starts <= home) & (home < ends)
            held += nbytes * here
            state += nbytes * here * (1 + (_GRADIENTS + optimizer_state if trained else 0))
            replicated = np.zeros_like(here)
            for r in readers[1:]:
                replicated |= (starts <= r) & (r < ends) & ~here
            state += nbytes * replicated * (1 + (_GRADIENTS if trained else 0))
        return held, state
