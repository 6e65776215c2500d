"""Polyhal device behind `torch.device("polyhal")`: the default device, or the one that POLYHAL_DEVICE names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.hal.device import Device
from polyhal_autoload.device_module import NAME

if TYPE_CHECKING:
    import torch

__all__ = ["NAME", "check_ordinal", "current"]


def current() -> Device:
    """Return the Polyhal device behind `torch.device("polyhal")`."""
    return Device.default()


def check_ordinal(device: torch.device | None) -> None:
    """Raise RuntimeError for a PyTorch device with an index other than 0."""
    if device is not None and device.index:
        raise RuntimeError(
            f"invalid device ordinal: {device}; PyTorch supports one Polyhal device, {NAME}:0. "
            "POLYHAL_DEVICE selects it"
        )
