"""The written result of a run of the kit on one device: what `polyhal verify` prints, keeps and hands on."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from polyhal.hal.device import Device
from polyhal.hal.discovery.fingerprint import Identity, identity
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.hal.kernels.quarantine import Entry
from polyhal.hal.planning.resolution import ResolutionStep
from polyhal.hal.settings import env, json_store
from polyhal.hal.testing.kit.scope import Scope

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Result:
    """One op in one dtype."""

    how: Mapping[ResolutionStep, int]
    """How many of the calls that are checked take which step, on contiguous tensors."""
    worst_ulp: float | None
    """The largest error against the float64 reference (see `tolerances.largest_error`); None where nothing is rounded."""
    passed: int
    failed: int
    """Cases."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that failed, and what became of it."""

    case: str
    op: str
    dtype: str
    call: str
    """What was called: the op with the dtypes and shapes of its inputs, its parameters, and how the inputs lie in memory."""
    problem: str
    place: str
    """The index of the first wrong element; empty where no result came of it, or one of the wrong shape."""
    got: str
    expected: str
    how: str
    """How the call ran, where that is known."""
    now: str
    """What happens from now on."""
    right: bool
    """Whether the case passes with the quarantine in force."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Everything that a run found out about a device."""

    name: str
    """What users call the device, as in `opencl:1`."""
    identity: Identity
    info: Mapping[str, Any]
    """Its `DeviceInfo`."""
    limits: Mapping[str, int]
    storage: tuple[str, ...]
    """Dtypes that may lie in its memory."""
    compute: tuple[str, ...]
    """Dtypes that it computes in."""
    date: str
    """UTC, ISO 8601."""
    python: str
    system: str
    scope: Mapping[str, Any]
    """`small`, `full`, and the pattern `only`."""
    seconds: float
    passed: int
    unsupported: int
    expected_failures: int
    complete: bool
    """False where the device was lost before the last case."""
    results: Mapping[str, Mapping[str, Result]]
    """By op and dtype; the dtype `any` stands for checks that are about none in particular."""
    findings: tuple[Finding, ...] = ()
    quarantined: tuple[Entry, ...] = field(default=())

    @property
    def failed(self) -> int:
        """Cases that are wrong with the quarantine in force."""
        return sum(not f.right for f in self.findings)

    @property
    def correct(self) -> bool:
        """Whether every case that ran passes with the quarantine in force, and none was left out for a lost device."""
        return self.complete and not self.failed

    @property
    def whole(self) -> bool:
        """Whether nothing was left out by choice."""
        return bool(self.scope["only"] == "*")

    @property
    def day(self) -> str:
        return self.date[:10]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "correct": self.correct,
            "failed": self.failed,
            **asdict(self),
            "quarantined": [e.to_json() for e in self.quarantined],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Certificate:
        """The certificate that `to_json` wrote. Raises CorruptFileError for anything else."""
        try:
            given = {f.name: value[f.name] for f in fields(cls)}
            found = cls(
                **given
                | {
                    "identity": Identity.from_json(given["identity"]),
                    "storage": tuple(map(str, given["storage"])),
                    "compute": tuple(map(str, given["compute"])),
                    "results": {
                        op: {dtype: _result(r) for dtype, r in row.items()} for op, row in given["results"].items()
                    },
                    "findings": tuple(Finding(**f) for f in given["findings"]),
                    "quarantined": tuple(Entry.from_json(e) for e in given["quarantined"]),
                }
            )
            _check(found)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise CorruptFileError(message(None, f"this is no certificate: {type(error).__name__}: {error}")) from error
        return found


def _result(value: Mapping[str, Any]) -> Result:
    how = {ResolutionStep(name): int(count) for name, count in value["how"].items()}
    ulp = value["worst_ulp"]
    return Result(how, None if ulp is None else float(ulp), int(value["passed"]), int(value["failed"]))


def _check(found: Certificate) -> None:
    """Raise ValueError or KeyError for members of the wrong type; those of other records are checked where they are made."""
    texts = (found.name, found.date, found.python, found.system)
    numbers = (found.seconds, found.passed, found.unsupported, found.expected_failures, *found.limits.values())
    datetime.fromisoformat(found.date)
    for key in ("small", "full", "only"):
        found.scope[key]
    for key in ("name", "type", "driver", "memory"):
        found.info[key]
    for f in found.findings:
        if not all(isinstance(getattr(f, x.name), bool if x.name == "right" else str) for x in fields(Finding)):
            raise ValueError(f"{f} is no finding")
    if not all(isinstance(t, str) for t in texts) or not all(isinstance(n, (int, float)) for n in numbers):
        raise ValueError("a text or a number is of another type")


def describe(device: Device, scope: Scope, only: str) -> dict[str, Any]:
    """The part of a certificate that is known before anything is run."""
    info, capabilities = device.info, device.capabilities
    return {
        "name": device.name,
        "identity": identity(device),
        "info": {**info.to_json(), "features": dict(capabilities.features)},
        "limits": {"memory": info.memory, **asdict(capabilities.limits)},
        "storage": tuple(sorted(d.name for d in capabilities.storage)),
        "compute": tuple(sorted(d.name for d in capabilities.compute)),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "scope": {**asdict(scope), "only": only},
    }


def read(path: Path) -> Certificate:
    """A certificate from a file. Raises OSError, CorruptFileError or IncompatibleFileError."""
    try:
        return Certificate.from_json(json_store.read(path, SCHEMA))
    except CorruptFileError as error:
        raise CorruptFileError(f"{path}: {error}") from error


def write(certificate: Certificate, path: Path) -> None:
    """Replace a file by a certificate. Raises OSError."""
    json_store.write(path, certificate.to_json())


def kept(device: Device) -> Path:
    """Where the certificate of a device, with its present driver and versions, is kept."""
    return env.cache_dir() / "certificates" / f"{identity(device).key}.json"


def stored(device: Device) -> tuple[Certificate | None, str]:
    """The kept certificate; or None, and in words why there is none that can be used."""
    path = kept(device)
    try:
        found = read(path)
    except FileNotFoundError:
        return None, f"{device.name} was not verified with this driver and these versions"
    except (OSError, CorruptFileError, IncompatibleFileError) as error:
        return None, f"the certificate is ignored: {error}"
    if found.identity != identity(device):
        return None, f"{path} is ignored: it is about {found.identity.device} with the driver {found.identity.driver}"
    return found, ""
