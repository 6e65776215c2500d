"""Units of hardware that a backend uses only once `polyhal verify --units` has found them right on a device and its driver.

Backends have kernels for instructions that their authors could compile but never run. Such a unit is off until its certificate
says that the kernels compute correctly. It holds for this device, driver and version of Polyhal, and for the kernels' texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.discovery.fingerprint import model, model_key
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError
from polyhal.hal.settings import env, json_store

_SCHEMA = 2


@dataclass(frozen=True, slots=True)
class UnitCertificate:
    """What checks of a unit found on one device."""

    unit: str
    problem: str
    """The first failure; empty if there was none."""
    checks: int
    """How many checks ran."""
    date: str
    """ISO 8601, the day."""
    texts: str
    """The digest of the kernels that were checked (see `Units`)."""

    @property
    def correct(self) -> bool:
        """Whether checks ran and none failed."""
        return not self.problem and self.checks > 0

    @classmethod
    def from_json(cls, value: Any) -> UnitCertificate:
        """Return the certificate of `to_json`. Raises ValueError for anything else."""
        try:
            found = cls(**value)
        except TypeError as error:
            raise ValueError(f"{value!r} is no certificate: {error}") from error
        texts = (found.unit, found.problem, found.date, found.texts)
        if not all(isinstance(t, str) for t in texts) or type(found.checks) is not int:
            raise ValueError(f"{value!r} is no certificate")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a device that need a certificate."""

    available: Mapping[str, str]
    """What each is, by name."""
    certificates: Mapping[str, UnitCertificate]
    """Of those that were checked."""
    forced: frozenset[str] = frozenset()
    """In use whatever the certificates say, and then no others are; empty to go by certificates."""
    kernels: tuple[str, ...] = ()
    """The kernel files that use them."""
    texts: str = ""
    """The digest of all that these files consist of, as this process has them."""

    @property
    def in_use(self) -> frozenset[str]:
        """The names of those that the backend uses."""
        return frozenset(self.available) & (self.forced or {c.unit for c in self.certificates.values() if c.correct})

    def lines(self, device: str) -> tuple[str, ...]:
        """Return what `doctor` prints of a device with that name: one line for each unit."""
        return tuple(f"{name} ({what}): {self._state(name, device)}" for name, what in self.available.items())

    def _state(self, name: str, device: str) -> str:
        found = self.certificates.get(name)
        if found is None:
            forced = "in use without a certificate; " if name in self.forced else "not in use: "
            return f"{forced}`polyhal verify --units {device}` finds out whether it computes correctly here"
        if found.correct:
            return f"in use: {found.checks} checks of {found.date} passed"
        return f"not in use: wrong on {found.date}: {found.problem}"


@runtime_checkable
class HasUnits(Protocol):
    """A backend with units that need a certificate."""

    units: Units


def units(
    info: DeviceInfo, available: Mapping[str, str], kernels: Collection[str], texts: str, *, forced: bool = False
) -> Units:
    """Return the units of a device, with what is known of them. `forced` puts all in use, `POLYHAL_UNITS` those it names."""
    certificates = load(info, texts) if available else {}
    named = env.units()
    return Units(available, certificates, frozenset(available if forced or "all" in named else named), tuple(kernels), texts)


def path(info: DeviceInfo) -> Path:
    """Return the file for a device with its present driver and this version of Polyhal."""
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
    """Keep certificates of a device beside those of its other units. Returns the file. Raises OSError.

    Processes that begin later act upon them.
    """
    file = path(info)
    with json_store.changing(file):
        kept = {**_load(info), **{c.unit: c for c in certificates}}
        content = [kept[unit].to_json() for unit in sorted(kept)]
        json_store.write(file, {"schema": _SCHEMA, "device": _identity(info), "certificates": content})
    return file


def _identity(info: DeviceInfo) -> dict[str, str]:
    """What a certificate holds for. Cards of one model with one driver share it: their instructions are the same."""
    return model(info)
