"""The device behind PyTorch's: the default one, or the one that POLYHAL_DEVICE names."""

from __future__ import annotations

from typing import Any

from polyhal.hal.device import Device
from polyhal_autoload.device_module import NAME

__all__ = ["NAME", "check_ordinal", "current"]


def current() -> Device:
    """The Polyhal device that `torch.device("polyhal")` stands for."""
    return Device.default()


def check_ordinal(device: Any) -> None:
    """Raise RuntimeError for a device of PyTorch's with a number other than 0."""
    if device is not None and device.index:
        raise RuntimeError(
            f"invalid device ordinal: {device}; PyTorch knows one device of Polyhal, {NAME}:0. "
            "POLYHAL_DEVICE chooses which it is"
        )
