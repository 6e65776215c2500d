"""Certificates: the results of a run of the kit on one device, printed and stored by `polyhal verify`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from polyhal.hal.compile.planning.quarantine import QuarantineEntry
from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core.fingerprint import Fingerprint, fingerprint
from polyhal.hal.core.settings import env, json_store
from polyhal.hal.device import Device
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.hal.testing.kit.scope import Scope

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class OpResult:
    """Result of one op in one dtype."""

    how: Mapping[ResolutionStep, int]
    """Number of checked calls per resolution step, on contiguous tensors."""
    worst_ulp: float | None
    """Largest error against the float64 reference (see `tolerances.largest_error`); None if results are not rounded."""
    passed: int
    failed: int
    """Number of failed cases."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A failed case, and its consequence."""

    case: str
    op: str
    dtype: str
    call: str
    """Op with the dtypes, shapes and memory layouts of its inputs, and its parameters."""
    problem: str
    place: str
    """Index of the first wrong element; empty if there is no result or its shape is wrong."""
    got: str
    expected: str
    how: str
    """Resolution of the call, if known."""
    now: str
    """State after the run."""
    right: bool
    """True if the case passes with the quarantine in effect."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Device, scope and all results of a run."""

    name: str
    """Name by which users open the device, such as `opencl:1`."""
    identity: Fingerprint
    info: Mapping[str, Any]
    """`DeviceInfo` of the device."""
    limits: Mapping[str, int]
    storage: tuple[str, ...]
    """Dtypes that the device can store."""
    compute: tuple[str, ...]
    """Dtypes that the device computes in."""
    date: str
    """Time in UTC, ISO 8601."""
    python: str
    system: str
    scope: Mapping[str, Any]
    """Scope of the run: `small`, `full`, and the pattern `only`."""
    seconds: float
    passed: int
    unsupported: int
    expected_failures: int
    complete: bool
    """True if all cases ran; False if the device was lost before the last case."""
    results: Mapping[str, Mapping[str, OpResult]]
    """Results by op and dtype; `any` for checks without a particular dtype."""
    findings: tuple[Finding, ...] = ()
    quarantined: tuple[QuarantineEntry, ...] = field(default=())

    @property
    def failed(self) -> int:
        """Return the number of cases that fail with the quarantine in effect."""
        return sum(not f.right for f in self.findings)

    @property
    def correct(self) -> bool:
        """Return whether every case passes with the quarantine in effect, and none is missing because the device was lost."""
        return self.complete and not self.failed

    @property
    def whole(self) -> bool:
        """Return whether all cases were selected."""
        return bool(self.scope["only"] == "*")

    @property
    def day(self) -> str:
        """Return the date without the time."""
        return self.date[:10]

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as plain data, with the schema and the derived figures."""
        return {
            "schema": SCHEMA,
            "correct": self.correct,
            "failed": self.failed,
            **asdict(self),
            "quarantined": [e.to_json() for e in self.quarantined],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Certificate:
        """Parse the result of `to_json`. Raises CorruptFileError for anything else."""
        try:
            members = {f.name: value[f.name] for f in fields(cls)}
            certificate = cls(
                **members
                | {
                    "identity": Fingerprint.from_json(members["identity"]),
                    "storage": tuple(map(str, members["storage"])),
                    "compute": tuple(map(str, members["compute"])),
                    "results": {
                        op: {dtype: _result(r) for dtype, r in row.items()} for op, row in members["results"].items()
                    },
                    "findings": tuple(Finding(**f) for f in members["findings"]),
                    "quarantined": tuple(QuarantineEntry.from_json(e) for e in members["quarantined"]),
                }
            )
            _check(certificate)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise CorruptFileError(
                message(None, f"this is not a certificate: {type(error).__name__}: {error}")
            ) from error
        return certificate


def _result(value: Mapping[str, Any]) -> OpResult:
    how = {ResolutionStep(name): int(count) for name, count in value["how"].items()}
    ulp = value["worst_ulp"]
    return OpResult(how, None if ulp is None else float(ulp), int(value["passed"]), int(value["failed"]))


def _check(certificate: Certificate) -> None:
    """Raise ValueError or KeyError for members of the wrong type; nested records check their own."""
    c = certificate
    texts: tuple[Any, ...] = (c.name, c.date, c.python, c.system)
    numbers: tuple[Any, ...] = (c.seconds, c.passed, c.unsupported, c.expected_failures, *c.limits.values())
    datetime.fromisoformat(c.date)
    for key in ("small", "full"):
        c.scope[key]
    texts += (*(c.info[key] for key in ("name", "type", "driver")), c.scope["only"])
    numbers += (c.info["memory"],)
    if not isinstance(c.info.get("features", {}), Mapping):
        raise ValueError("the features are not a mapping")
    for f in c.findings:
        if not all(isinstance(getattr(f, x.name), bool if x.name == "right" else str) for x in fields(Finding)):
            raise ValueError(f"{f} is not a finding")
    if not all(isinstance(t, str) for t in texts) or not all(isinstance(n, (int, float)) for n in numbers):
        raise ValueError("a text or a number has another type")


def describe(device: Device, scope: Scope, only: str) -> dict[str, Any]:
    """Return the fields of a certificate that are known before the run."""
    info, capabilities = device.info, device.capabilities
    return {
        "name": device.name,
        "identity": fingerprint(device),
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
    """Read a certificate. Raises OSError, CorruptFileError or IncompatibleFileError."""
    try:
        return Certificate.from_json(json_store.read(path, SCHEMA))
    except CorruptFileError as error:
        raise CorruptFileError(f"{path}: {error}") from error


def write(certificate: Certificate, path: Path) -> None:
    """Write a certificate. Raises OSError."""
    json_store.write(path, certificate.to_json())


def certificate_path(device: Device) -> Path:
    """Return the cache file of the certificate for a device with its current driver and versions."""
    return env.cache_dir() / "certificates" / f"{fingerprint(device).key}.json"


def stored(device: Device) -> tuple[Certificate | None, str]:
    """Return the stored certificate; or None and the reason why there is no usable one."""
    path = certificate_path(device)
    try:
        certificate = read(path)
    except FileNotFoundError:
        return None, f"{device.name} was not verified with this driver and these versions"
    except (OSError, CorruptFileError, IncompatibleFileError) as error:
        return None, f"the certificate is ignored: {error}"
    if certificate.identity != fingerprint(device):
        other = certificate.identity
        return None, f"{path} is ignored: it was issued for {other.device} with the driver {other.driver}"
    return certificate, ""
