"""Fingerprints: the device, driver and versions of software for which a result about a device is valid."""

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
class Fingerprint:
    """A device, with all software that affects its results. Equal fingerprints may share results."""

    backend: str
    device: str
    """Name reported by the driver."""
    id: str
    driver: str
    polyhal: str
    """Version of Polyhal; empty if it runs from a folder that is not installed."""
    distribution: str
    """Distribution that contains the backend; empty if a program registered it."""
    version: str
    """Version of that distribution."""

    @property
    def key(self) -> str:
        """Return a file name that differs between fingerprints and starts with the name of the backend."""
        return f"{_file_name(self.backend)}-{_digest(asdict(self))}"

    def to_json(self) -> dict[str, str]:
        """Return the fields as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Fingerprint:
        """Return the fingerprint that `to_json` wrote. Raises ValueError for anything else."""
        names = {f.name for f in fields(cls)}
        if not isinstance(value, dict) or set(value) != names or not all(isinstance(v, str) for v in value.values()):
            raise ValueError(f"the identity is {value!r}; expected texts named {', '.join(sorted(names))}")
        return cls(**value)


def fingerprint(device: Device) -> Fingerprint:
    """Return the fingerprint of an opened device. Reads the metadata of installed packages."""
    info, origin = device.info, device.origin
    return Fingerprint(
        info.backend,
        info.name,
        info.id,
        info.driver,
        _version("polyhal"),
        origin.distribution if origin else "",
        origin.version if origin else "",
    )


def model(info: DeviceInfo) -> dict[str, str]:
    """Return the properties that speed depends on, common to cards of one model. Does not open a device."""
    return {"backend": info.backend, "name": info.name, "driver": info.driver, "polyhal": _version("polyhal")}


def model_key(info: DeviceInfo, *, driver: bool = True) -> str:
    """Return a file name for `model`; without `driver`, one that survives updates of driver and Polyhal."""
    depends_on = model(info) if driver else {"backend": info.backend, "name": info.name}
    return f"{_file_name(info.backend)}-{_digest(depends_on)}"


def device_key(device: Device) -> str:
    """Return a file name for data stored once per device, independent of its driver. Does not read package metadata."""
    info = device.info
    return f"{_file_name(info.backend)}-{_digest({'backend': info.backend, 'id': info.id})}"


def _digest(value: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:32]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # run from a folder that is not installed
        return ""
