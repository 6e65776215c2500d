"""The devices of a run, from the options --device and --devices."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from polyhal.hal.core.settings import env
from polyhal.hal.device import Device
from polyhal.hal.errors import SettingError, message
from polyhal.hal.system.discovery.device_list import open_devices
from polyhal.hal.system.discovery.registry import registry


@dataclass(frozen=True, slots=True)
class ChosenDevices:
    """Opened devices, and the option that named them; no option for the default device."""

    opened: tuple[Device, ...]
    option: tuple[str, ...] = ()

    @classmethod
    def of(cls, device: Any, devices: Any) -> ChosenDevices:
        """Open the devices of --device or --devices. Raises SettingError, DeviceUnavailableError."""
        if device is not None and devices is not None:
            raise SettingError(message(None, "--device and --devices are both given", expected="one of them"))
        if devices is None:
            name = _text("device", device)
            return cls((Device(name),), () if name is None else ("--device", name))
        names = ",".join(devices) if isinstance(devices, list) and all(isinstance(d, str) for d in devices) else devices
        if not isinstance(names, str):
            raise SettingError(message(None, f"devices is {names!r}", expected="text, or a list of names"))
        try:
            return cls(open_devices(names), ("--devices", names))
        except ValueError as error:
            raise SettingError(f"--devices {names}: {error}") from error

    @property
    def arguments(self) -> str:
        """Option that selects the same devices, to append to a command line."""
        return "".join(f" {shlex.quote(x)}" for x in self.option)

    @property
    def first(self) -> str:
        """Option for a command that uses one device: the first."""
        if len(self.opened) == 1:
            return self.arguments.replace(" --devices ", " --device ")
        return f" --device {shlex.quote(self.opened[0].name)}"

    def explain(self) -> str:
        """Return each device, and the reason why it was chosen."""
        if not self.option:
            return f"device: {registry().explain_default()}"
        if len(self.opened) == 1:
            (device,) = self.opened
            return f"device: {device.name} ({device.info.name}), chosen by {' '.join(self.option)}"
        named = ", ".join(f"{d.name} ({d.info.name})" for d in self.opened)
        return f"devices: {named}, chosen by {' '.join(self.option)}"


def default_is_set() -> bool:
    """Return whether the environment variable POLYHAL_DEVICE names the default device."""
    return bool(env.default_device())


def _text(name: str, value: Any) -> str | None:
    """Return a name, which may have another type in a configuration file. Raises SettingError."""
    if value is not None and not isinstance(value, str):
        raise SettingError(message(None, f"{name} is {value!r}", expected="text"))
    return value


__all__ = ["ChosenDevices", "default_is_set"]
