"""Matrix units that a backend uses only after `polyhal verify --units` has verified them on a device and its driver.

Backends have kernels for instructions that their authors could compile but never run. Such a unit is disabled until a
certificate states that its kernels compute correctly. A certificate is valid for one device, driver and version of
Polyhal, and for the kernels' texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.fingerprint import model, model_key
from polyhal.hal.core.settings import env, json_store
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError

_SCHEMA = 2


@dataclass(frozen=True, slots=True)
class UnitCertificate:
    """Result of the checks of a unit on one device."""

    unit: str
    problem: str
    """First failure; empty if there was none."""
    checks: int
    """Number of checks that ran."""
    date: str
    """Day of the checks, ISO 8601."""
    texts: str
    """Digest of the checked kernels (see `Units`)."""

    @property
    def correct(self) -> bool:
        """Return whether checks ran and none failed."""
        return not self.problem and self.checks > 0

    @classmethod
    def from_json(cls, value: Any) -> UnitCertificate:
        """Return the certificate that `to_json` wrote. Raises ValueError for anything else."""
        try:
            found = cls(**value)
        except TypeError as error:
            raise ValueError(f"{value!r} is not a certificate: {error}") from error
        texts = (found.unit, found.problem, found.date, found.texts)
        if not all(isinstance(t, str) for t in texts) or type(found.checks) is not int:
            raise ValueError(f"{value!r} is not a certificate")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Units:
    """Units of a device that require a certificate."""

    available: Mapping[str, str]
    """Descriptions of the units by name."""
    certificates: Mapping[str, UnitCertificate]
    """Certificates of checked units."""
    forced: frozenset[str] = frozenset()
    """The only units in use, regardless of certificates; empty to follow the certificates."""
    kernels: tuple[str, ...] = ()
    """Kernel files that use the units."""
    texts: str = ""
    """Digest of the kernel files and their includes in this process."""

    @property
    def in_use(self) -> frozenset[str]:
        """Return the names of the units in use."""
        return frozenset(self.available) & (self.forced or {c.unit for c in self.certificates.values() if c.correct})

    def lines(self, device: str) -> tuple[str, ...]:
        """Return the lines of `doctor` for a device with that name, one for each unit."""
        return tuple(f"{name} ({what}): {self._state(name, device)}" for name, what in self.available.items())

    def _state(self, name: str, device: str) -> str:
        found = self.certificates.get(name)
        if found is None:
            forced = "in use without a certificate; " if name in self.forced else "not in use: "
            return f"{forced}`polyhal verify --units {device}` verifies it on this device"
        if found.correct:
            return f"in use: {found.checks} checks of {found.date} passed"
        return f"not in use: wrong on {found.date}: {found.problem}"


@runtime_checkable
class HasUnits(Protocol):
    """A backend with units that require a certificate."""

    units: Units


def units(
    info: DeviceInfo, available: Mapping[str, str], kernels: Collection[str], texts: str, *, forced: bool = False
) -> Units:
    """Return the units of a device, with their certificates. `forced` enables all of them, `POLYHAL_UNITS` the named ones."""
    certificates = load(info, texts) if available else {}
    named = env.units()
    return Units(
        available, certificates, frozenset(available if forced or "all" in named else named), tuple(kernels), texts
    )


def path(info: DeviceInfo) -> Path:
    """Return the file for a device with its current driver and this version of Polyhal."""
    return env.cache_dir() / "certificates" / f"{model_key(info)}-units.json"


def load(info: DeviceInfo, texts: str) -> dict[str, UnitCertificate]:
    """Return the certificates of a device for kernels with that digest, by unit; empty if there is no usable file."""
    return {unit: c for unit, c in _load(info).items() if c.texts == texts}


def _load(info: DeviceInfo) -> dict[str, UnitCertificate]:
    try:
        content = json_store.read(path(info), _SCHEMA)
        if content.get("device") != _identity(info):
            return {}
        found = [UnitCertificate.from_json(v) for v in content["certificates"]]
    except (OSError, KeyError, TypeError, ValueError, CorruptFileError, IncompatibleFileError):
        return {}
    return {c.unit: c for c in found}


def store(info: DeviceInfo, certificates: Iterable[UnitCertificate]) -> Path:
    """Store certificates of a device, in addition to existing ones of other units. Returns the file. Raises OSError.

    They take effect in processes started later.
    """
    file = path(info)
    with json_store.changing(file):
        kept = {**_load(info), **{c.unit: c for c in certificates}}
        content = [kept[unit].to_json() for unit in sorted(kept)]
        json_store.write(file, {"schema": _SCHEMA, "device": _identity(info), "certificates": content})
    return file


def _identity(info: DeviceInfo) -> dict[str, str]:
    """Return the identity that a certificate is valid for.

    Cards of one model with one driver share it: their instructions are equal.
    """
    return model(info)
