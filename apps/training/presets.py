"""Defaults for a device: the model depends on its kind and memory, the number of steps on its measured speed.

The model never depends on a measurement, so that a command always builds the same model on a machine.
"""

from __future__ import annotations

from typing import Any

from polyhal import Device
from polyhal.hal.capabilities import DeviceType

_CPU: dict[str, Any] = {}
"""Defaults of `TrainOptions`: 0.8 million parameters, which two CPU cores train in two minutes."""
_SMALL_GPU: dict[str, Any] = {
    "layers": 6,
    "heads": 6,
    "width": 192,
    "context": 128,
    "batch_size": 32,
    "dropout": 0.1,
    "lr": 2e-3,
}
_GPU: dict[str, Any] = {
    "layers": 6,
    "heads": 6,
    "width": 384,
    "context": 256,
    "batch_size": 64,
    "dropout": 0.2,
    "lr": 1e-3,
}
_LARGE_MEMORY = 6 << 30
"""Minimum bytes of device memory for the activations of the large preset."""

_BUDGET = 95.0
"""Seconds of training that leave time for evaluations, samples and checkpoints within two minutes."""
_FEWEST, _MOST = 200, 5000
_EPOCHS = 20
"""Epochs after which a model of such a size mainly memorizes the text."""

_EVALUATION_GAP = 25
"""Minimum number of steps between evaluations; one costs as much as about seven steps."""


def for_device(device: Device) -> dict[str, Any]:
    """Return the settings that differ from the defaults of `TrainOptions` on this device."""
    if device.type is DeviceType.CPU:
        return dict(_CPU)
    large = device.type is DeviceType.GPU and device.info.memory >= _LARGE_MEMORY
    return dict(_GPU if large else _SMALL_GPU)


def steps_for(seconds_per_step: float, steps_per_epoch: float) -> int:
    """Return the default number of steps: two minutes' worth, within limits for the length of the text."""
    affordable = _BUDGET / max(seconds_per_step, 1e-6)
    useful = max(_EPOCHS * steps_per_epoch, _FEWEST)
    steps = min(max(affordable, _FEWEST), useful, _MOST)
    return max(round(steps / 50) * 50, 50)


def intervals(steps: int) -> dict[str, int]:
    """Return the intervals of logging, evaluation and samples for a run of `steps` steps."""
    return {
        "log_every": min(max(steps // 20, 1), 10),
        "eval_every": max(steps // 10, min(steps, _EVALUATION_GAP)),
        "sample_every": max(steps // 4, min(steps, _EVALUATION_GAP)),
    }
