"""Functions of `torch.polyhal`: the interface of an accelerator module such as `torch.cuda`."""

from __future__ import annotations

from typing import Any

from polyhal.torch.device_module import devices, memory, randomness, streams
from polyhal_autoload.device_module import DeviceModule

PUBLIC = (devices, memory, randomness, streams)
"""Modules whose functions and classes `torch.polyhal` has."""


def names() -> dict[str, Any]:
    """Return all contents of `torch.polyhal`, by name. Trainers look for `random`, as in `torch.cuda`."""
    found: dict[str, Any] = {"random": randomness}
    for file in PUBLIC:
        found |= {name: getattr(file, name) for name in file.__all__}
    return found


def install(module: DeviceModule) -> None:
    """Install the functions of `torch.polyhal`, and seed the device with a seed that was set before."""
    if module.pending_seed is not None:
        randomness.manual_seed(module.pending_seed)
    for name, value in names().items():
        setattr(module, name, value)
