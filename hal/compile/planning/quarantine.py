"""Quarantine: kernels that failed the conformance kit on this machine, which the planner skips.

`polyhal verify` writes one list per device. It is valid for the tested driver and versions. Under any others it counts as
empty: the failure may have been fixed, and another check takes minutes at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.planning.resolution import LayoutClass, ResolutionStep
from polyhal.hal.core.fingerprint import Fingerprint, device_key, fingerprint
from polyhal.hal.core.settings import env, json_store
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_SCHEMA = 1
_STEPS = (ResolutionStep.NATIVE, ResolutionStep.CORE)
"""Resolution steps that use a kernel of the backend and that later steps can replace."""


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """A kernel that the planner skips."""

    step: ResolutionStep
    """NATIVE for a kernel that `lower` returns; CORE for a core method with a name beyond the required ones."""
    op: str
    dtype: str
    """Subject of the op (see `polyhal.hal.compile.planning.resolution.subject`)."""
    layouts: tuple[LayoutClass, ...]
    """Layout classes for which the kernel is skipped."""
    failure: str
    """Description of the failure, in one line."""
    case: str
    """Case of the kit that failed."""
    date: str
    """Day of the failure, in ISO 8601."""
    fatal: bool = False
    """True if the device or the process crashed. Later checks under this driver then leave the kernel out."""

    @property
    def reason(self) -> str:
        """Line that `explain` prints."""
        return f"quarantined by `polyhal verify` on {self.date}: {self.failure}"

    @property
    def kernel(self) -> str:
        """Description of the kernel for users."""
        every = set(self.layouts) == set(LayoutClass)
        where = "" if every else f" on {' and '.join(self.layouts)} tensors"
        return f"{self.op} of {self.dtype}{where}, {'native kernel' if self.step is ResolutionStep.NATIVE else 'core method'}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> QuarantineEntry:
        """Return the entry that `to_json` wrote. Raises ValueError for anything else."""
        try:
            entry = cls(
                **{**value, "step": ResolutionStep(value["step"]), "layouts": tuple(map(LayoutClass, value["layouts"]))}
            )
        except (TypeError, KeyError) as error:
            raise ValueError(f"{value!r} is not an entry: {error}") from error
        texts = (entry.op, entry.dtype, entry.failure, entry.case, entry.date)
        valid = all(isinstance(t, str) for t in texts) and isinstance(entry.fatal, bool)
        if entry.step not in _STEPS or not entry.layouts or not valid:
            raise ValueError(f"{value!r} is not an entry")
        return entry


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The kernels that the planner of one device skips."""

    entries: tuple[QuarantineEntry, ...] = ()
    ignored: str = ""
    """Reason why an existing list could not be read; empty otherwise."""

    def find(self, step: ResolutionStep, op: str, dtype: str, layout: LayoutClass) -> QuarantineEntry | None:
        """Return the entry that quarantines a step of an op; None without one."""
        for e in self.entries:
            if e.op == op and e.step is step and e.dtype == dtype and layout in e.layouts:
                return e
        return None

    def lines(self) -> tuple[str, ...]:
        """Return the lines that `doctor` prints."""
        return (*(f"{e.kernel}: {e.reason}" for e in self.entries), *([self.ignored] if self.ignored else []))

    def __or__(self, entries: Iterable[QuarantineEntry]) -> Quarantine:
        return Quarantine((*self.entries, *entries), self.ignored)


EMPTY = Quarantine()


def load(device: Device) -> Quarantine:
    """Return the list of a device; empty if it does not exist, is for another driver or version, or is unreadable."""
    path = _path(device)
    try:
        content = json_store.read(path, _SCHEMA)
        if Fingerprint.from_json(content.get("identity")) != fingerprint(device):
            return EMPTY
        entries = content.get("entries")
        if not isinstance(entries, list):
            raise ValueError("it has no list of entries")
        return Quarantine(tuple(QuarantineEntry.from_json(e) for e in entries))
    except FileNotFoundError:
        return EMPTY
    except (OSError, ValueError, CorruptFileError, IncompatibleFileError) as error:
        return Quarantine(ignored=f"{path} is ignored: {error}")


def store(device: Device, entries: Iterable[QuarantineEntry]) -> Path:
    """Replace the list of a device, for its present driver and versions. Returns the file. Raises OSError.

    Drops the plans of the device, so that the list takes effect immediately.
    """
    path = _path(device)
    content = {
        "schema": _SCHEMA,
        "identity": fingerprint(device).to_json(),
        "entries": [e.to_json() for e in entries],
    }
    json_store.write(path, content)
    device.planner.forget()
    return path


def _path(device: Device) -> Path:
    return env.cache_dir() / "quarantine" / f"{device_key(device)}.json"
