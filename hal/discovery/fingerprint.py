"""What a finding about a device holds for: this device, with this driver, under these versions of the software."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyhal.hal.capabilities import DeviceInfo
    from polyhal.hal.device import Device


@dataclass(frozen=True, slots=True)
class Identity:
    """A device and all that decides how it computes. Two equal identities may share findings."""

    backend: str
    device: str
    """Its name, as the driver tells it."""
    id: str
    driver: str
    polyhal: str
    """Version; empty where Polyhal runs from a folder that is not installed."""
    distribution: str
    """What brought the backend; empty where a program registered it."""
    version: str
    """Of that distribution."""

    @property
    def key(self) -> str:
        """A file name that is different for different identities and says which backend it is about."""
        return f"{_plain(self.backend)}-{_digest(asdict(self))}"

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Identity:
        """The identity that `to_json` wrote. Raises ValueError for anything else."""
        names = {f.name for f in fields(cls)}
        if not isinstance(value, dict) or set(value) != names or not all(isinstance(v, str) for v in value.values()):
            raise ValueError(f"the identity is {value!r}; expected texts named {', '.join(sorted(names))}")
        return cls(**value)


def identity(device: Device) -> Identity:
    """The identity of an opened device. Reads the metadata of installed packages."""
    from polyhal.hal.discovery.registry import registry

    info = device.info
    origin = registry().origins.get(info.backend)
    return Identity(
        info.backend,
        info.name,
        info.id,
        info.driver,
        _version("polyhal"),
        origin.distribution if origin else "",
        origin.version if origin else "",
    )


def model(info: DeviceInfo) -> dict[str, str]:
    """What findings about speed depend on; cards of one model share it. Needs no opened device."""
    return {"backend": info.backend, "name": info.name, "driver": info.driver, "polyhal": _version("polyhal")}


def model_key(info: DeviceInfo, *, driver: bool = True) -> str:
    """A file name for `model`; without `driver` one that stays when driver or Polyhal change."""
    depends = model(info) if driver else {"backend": info.backend, "name": info.name}
    return f"{_plain(info.backend)}-{_digest(depends)}"


def place(device: Device) -> str:
    """A file name for what is kept once per device, whatever its driver. Costs no look at installed packages."""
    info = device.info
    return f"{_plain(info.backend)}-{_digest({'backend': info.backend, 'id': info.id})}"


def _digest(value: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:32]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # run from a folder that is not installed
        return ""
