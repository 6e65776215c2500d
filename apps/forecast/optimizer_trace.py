"""A captured optimizer step on a simulated device: AdamW with gradient norm clipping, as in `polyhal train`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyhal import Device, jit, zeros
from polyhal.forecast.run_times import time_runs
from polyhal.nn import Module
from polyhal.nn.utils import clip_grad_norm_
from polyhal.optim import AdamW


@dataclass(frozen=True, slots=True)
class OptimizerTrace:
    """Costs of an optimizer step as a function of the bytes of parameters."""

    least: float
    """Seconds of a step with few parameters."""
    seconds_per_byte: float
    state_per_byte: float
    """Bytes of optimizer state per byte of parameters."""

    def seconds(self, nbytes: float) -> float:
        """Return the time of a step on parameters of `nbytes`."""
        return self.least + self.seconds_per_byte * nbytes


def trace_optimizer(model: Module, device: Device) -> OptimizerTrace:
    """Capture steps on all parameters and on half of them, and fit a line: the kernels are bound by memory bandwidth."""
    parameters = sorted(model.parameters(), key=lambda p: -p.nbytes)
    some = [parameters[0]] if len(parameters) < 3 else parameters[::2]
    all_bytes, some_bytes = (sum(p.nbytes for p in chosen) for chosen in (parameters, some))
    all_seconds, state = _step(parameters, device)
    some_seconds, _ = _step(some, device)
    slope = max(0.0, (all_seconds - some_seconds) / max(1, all_bytes - some_bytes))
    slope = min(slope, all_seconds / all_bytes)
    return OptimizerTrace(all_seconds - slope * all_bytes, slope, state / all_bytes)


def _step(parameters: Sequence[Any], device: Device) -> tuple[float, int]:
    """Return the seconds of a step, and the bytes of its state."""
    for p in parameters:
        p.grad = zeros(p.shape, p.dtype, device)
    optimizer = AdamW(parameters, lr=1e-3)

    def update() -> None:
        clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    step = jit(update)
    step()
    step()
    times = time_runs(device, step)
    memory = step.steps[0].memory_report().devices[0]
    for p in parameters:
        p.grad = None
    return max(times.total, times.host), memory.state.nbytes
