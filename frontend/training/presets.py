"""Defaults that suit a device: the model from its kind and memory, the number of steps from its measured speed.

The model never depends on a measurement, so that the same command builds the same model on the same machine every time.
"""

from __future__ import annotations

from typing import Any

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.device import Device

_CPU: dict[str, Any] = {}
"""What `TrainOptions` has by itself: 0.8 million parameters, which two processor cores teach in two minutes."""
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
"""Bytes of device memory from which the activations of the large preset surely fit."""

_BUDGET = 95.0
"""Seconds of training that leave room for evaluations, samples and checkpoints within two minutes."""
_FEWEST, _MOST = 200, 5000
_EPOCHS = 20
"""More passes over a text than this teach a model of these sizes little but the text by heart."""

_EVALUATION_GAP = 25
"""Steps between two evaluations at least: one costs as much as about seven steps."""


def for_device(device: Device) -> dict[str, Any]:
    """The settings of a run that differ from the defaults of `TrainOptions` on this device."""
    if device.type is DeviceType.CPU:
        return dict(_CPU)
    large = device.type is DeviceType.GPU and device.info.memory >= _LARGE_MEMORY
    return dict(_GPU if large else _SMALL_GPU)


def steps_for(seconds_per_step: float, steps_per_epoch: float) -> int:
    """How many steps to take when nobody says: two minutes' worth, within reason for the length of the text."""
    affordable = _BUDGET / max(seconds_per_step, 1e-6)
    useful = max(_EPOCHS * steps_per_epoch, _FEWEST)
    steps = min(max(affordable, _FEWEST), useful, _MOST)
    return max(round(steps / 50) * 50, 50)


def intervals(steps: int) -> dict[str, int]:
    """How often to log, evaluate and print a sample in a run of so many steps."""
    return {
        "log_every": min(max(steps // 20, 1), 10),
        "eval_every": max(steps // 10, min(steps, _EVALUATION_GAP)),
        "sample_every": max(steps // 4, min(steps, _EVALUATION_GAP)),
    }
