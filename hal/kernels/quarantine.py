"""Kernels that fail on this machine, by the conformance kit's findings: the planner passes them over.

`polyhal verify` writes one list per device. It holds for the driver and the versions it was made with; under any other
it is empty, because what failed may have been mended, and a check costs minutes at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyhal.hal.discovery.fingerprint import Identity, identity, place
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError
from polyhal.hal.planning.resolution import LayoutClass, ResolutionStep
from polyhal.hal.settings import env, json_store

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_SCHEMA = 1
_STEPS = (ResolutionStep.NATIVE, ResolutionStep.CORE)
"""The steps that a kernel of a backend stands behind and that others can take the place of."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel that is passed over."""

    step: ResolutionStep
    """NATIVE: the kernel that `lower` gives; CORE: a method of the contract under a name that it does not require."""
    op: str
    dtype: str
    """The subject of the op (see `polyhal.hal.planning.resolution.subject`)."""
    layouts: tuple[LayoutClass, ...]
    """The classes of layout for which it is passed over."""
    failure: str
    """What went wrong, in one line."""
    case: str
    """The check that found it."""
    date: str
    """ISO 8601, the day."""
    fatal: bool = False
    """Whether the device or the process did not survive: then no later check tries it under this driver."""

    @property
    def reason(self) -> str:
        """What `explain` says."""
        return f"quarantined by `polyhal verify` on {self.date}: {self.failure}"

    @property
    def kernel(self) -> str:
        """What is passed over, for people."""
        every = set(self.layouts) == set(LayoutClass)
        where = "" if every else f" on {' and '.join(self.layouts)} tensors"
        return f"{self.op} of {self.dtype}{where}, {'native kernel' if self.step is ResolutionStep.NATIVE else 'core method'}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Entry:
        """The entry that `to_json` wrote. Raises ValueError for anything else."""
        try:
            entry = cls(
                **{**value, "step": ResolutionStep(value["step"]), "layouts": tuple(map(LayoutClass, value["layouts"]))}
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"{value!r} is no entry: {error}") from error
        texts = (entry.op, entry.dtype, entry.failure, entry.case, entry.date)
        sound = all(isinstance(t, str) for t in texts) and isinstance(entry.fatal, bool)
        if entry.step not in _STEPS or not entry.layouts or not sound:
            raise ValueError(f"{value!r} is no entry")
        return entry


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What the planner of one device passes over."""

    entries: tuple[Entry, ...] = ()
    ignored: str = ""
    """Why a list that is there could not be read; empty where none is there or it could."""

    def find(self, step: ResolutionStep, op: str, dtype: str, layout: LayoutClass) -> Entry | None:
        """The entry that speaks against a step for an op, if any."""
        for e in self.entries:
            if e.op == op and e.step is step and e.dtype == dtype and layout in e.layouts:
                return e
        return None

    def lines(self) -> tuple[str, ...]:
        """What `doctor` says."""
        return (*(f"{e.kernel}: {e.reason}" for e in self.entries), *([self.ignored] if self.ignored else []))

    def __or__(self, entries: Iterable[Entry]) -> Quarantine:
        return Quarantine((*self.entries, *entries), self.ignored)


EMPTY = Quarantine()


def load(device: Device) -> Quarantine:
    """The list of a device: empty where there is none, where it is of another driver or version, or unreadable."""
    path = _path(device)
    try:
        found = json_store.read(path, _SCHEMA)
        if Identity.from_json(found.get("identity")) != identity(device):
            return EMPTY
        entries = found.get("entries")
        if not isinstance(entries, list):
            raise ValueError("it has no list of entries")
        return Quarantine(tuple(Entry.from_json(e) for e in entries))
    except FileNotFoundError:
        return EMPTY
    except (OSError, ValueError, CorruptFileError, IncompatibleFileError) as error:
        return Quarantine(ignored=f"{path} is ignored: {error}")


def store(device: Device, entries: Iterable[Entry]) -> Path:
    """Replace the list of a device, for its present driver and versions. Returns the file. Raises OSError.

    Plans that the device has made already are unmade, so that the list holds from now on.
    """
    path = _path(device)
    found = {
        "schema": _SCHEMA,
        "identity": identity(device).to_json(),
        "entries": [e.to_json() for e in entries],
    }
    json_store.write(path, found)
    device.planner.forget()
    return path


def _path(device: Device) -> Path:
    return env.cache_dir() / "quarantine" / f"{place(device)}.json"
