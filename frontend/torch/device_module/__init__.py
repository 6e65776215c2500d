"""The functions of `torch.polyhal`: what PyTorch and its users ask of the module of an accelerator, as in `torch.cuda`."""

from __future__ import annotations

from typing import Any

from polyhal.torch.device_module import devices, memory, randomness, streams
from polyhal_autoload.device_module import DeviceModule

PUBLIC = (devices, memory, randomness, streams)
"""The files whose functions and classes it has."""


def names() -> dict[str, Any]:
    """Everything that `torch.polyhal` has, by name."""
    found: dict[str, Any] = {}
    for file in PUBLIC:
        found |= {name: getattr(file, name) for name in file.__all__}
    return found


def install(module: DeviceModule) -> None:
    """Give `torch.polyhal` its functions, and the device the seed that was set before."""
    if module.pending_seed is not None:
        randomness.manual_seed(module.pending_seed)
    for name, value in names().items():
        setattr(module, name, value)
