"""The device of tensors that are made without one."""

from __future__ import annotations

from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.system.discovery.registry import registry


@top_level
def get_default_device() -> Device:
    """Return the device of tensors that name none: the device of the thread's `with` block, else `Device.default()`."""
    return dispatch.target_device(None)


@top_level
def set_default_device(device: Device | str | None) -> None:
    """Set the device of new tensors without an explicit device, for the whole process.

    None goes back to the best device of this machine, or the one that POLYHAL_DEVICE names. Raises DeviceUnavailableError.

    >>> import polyhal
    >>> polyhal.set_default_device("numpy")
    >>> polyhal.zeros(2).device
    Device('numpy')
    >>> polyhal.set_default_device(None)
    """
    registry().set_default(device)
