"""Functions that `torch.save` and `torch.load` call for the storages of any device."""

from __future__ import annotations

from typing import Any

from polyhal_autoload.device_module import NAME


def location(storage: Any) -> str | None:
    """The device of a storage in a file; None for other devices."""
    return f"{NAME}:0" if storage.device.type == NAME else None


def deserialize(storage: Any, place: str) -> Any:
    """A storage that was read from a file, on the device that it was saved from or is mapped to; None for other devices."""
    if place.split(":")[0] != NAME:
        return None
    from polyhal.torch.storages import to_device

    return to_device(storage, place)
