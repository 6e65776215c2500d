"""The file format of `polyhal doctor --report`, with a reader that validates untrusted files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.errors import CorruptFileError, message
from polyhal.utils.files import read_json, write_json

SCHEMA = 1
LONGEST_TEXT = 20_000
"""Maximum characters of a text; the names of all ops need a quarter of it."""
FULL_SECONDS = 240.0
"""Time of a full report; reports with less are marked as brief."""
CHECKS_WEIGHT = 3.0
"""Seconds of checks per second of benchmarks: devices with slow compilers need them."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpeedFigure:
    """Speed of one workload; `problem` is the reason if there is no `value`."""

    what: str
    dtype: str
    size: str
    """Description of the work of one call."""
    value: float
    unit: str
    """Unit of `value`: GB/s, GFLOP/s or samples/s."""
    milliseconds: float
    """Median time of a call."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check of the conformance kit that failed or crashed its process."""

    case: str
    op: str
    dtype: str
    call: str
    problem: str


@dataclass(frozen=True, slots=True)
class QuickChecks:
    """The short form of `polyhal verify`: as many checks as fit in the time, spread over all ops."""

    selected: int
    """Total number of checks."""
    passed: int
    seconds: float
    passed_ops: Mapping[str, str]
    """Ops that passed every check that ran, by dtype, separated by spaces."""
    failures: tuple[FailedCheck, ...] = ()
    problem: str = ""
    """Reason if the checks ended early, or none ran."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Properties of a device according to its driver, without anything that identifies the machine."""

    device: str
    type: str
    vendor: str
    driver: str
    memory: int
    """Bytes of memory."""
    features: Mapping[str, str]
    limits: Mapping[str, int]
    storage: tuple[str, ...]
    compute: tuple[str, ...]
    quirks: tuple[str, ...]
    """Names of active workarounds."""


@dataclass(frozen=True, slots=True)
class ReportedDevice:
    """One device; if it could not be opened, `facts` is None and `problem` is the reason."""

    name: str
    facts: DeviceFacts | None
    checks: QuickChecks | None
    benchmark: tuple[SpeedFigure, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Another framework that ran the same workloads."""

    name: str
    device: str
    benchmark: tuple[SpeedFigure, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MachineReport:
    """All devices of a machine, on one day."""

    date: str
    """Day of the report, ISO 8601."""
    seconds: float
    """Benchmark time of all devices; checks take `CHECKS_WEIGHT` times as long."""
    versions: Mapping[str, str]
    """Versions of Python, Polyhal and the packages that it uses."""
    system: Mapping[str, str]
    """Operating system, architecture, CPU model and number of cores."""
    devices: tuple[ReportedDevice, ...]
    baselines: tuple[Baseline, ...]
    problems: tuple[str, ...]
    """Reasons for missing backends or devices."""

    @property
    def brief(self) -> bool:
        """True if checks and benchmarks had less than the full time."""
        return self.seconds * (1 + CHECKS_WEIGHT) < FULL_SECONDS

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, with the schema."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MachineReport:
        """Parse a result of `to_json`. Raises CorruptFileError for anything else."""
        try:
            return cls(
                _day(value["date"]),
                _number(value["seconds"]),
                _mapping(value["versions"], _text),
                _mapping(value["system"], _text),
                _tuple(value["devices"], _device),
                _tuple(value["baselines"], _baseline),
                _tuple(value["problems"], _text),
            )
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            problem = f"the file is not a report of devices: {type(error).__name__}: {str(error)[:200]}"
            raise CorruptFileError(message(None, problem)) from error


def read(path: Path) -> MachineReport:
    """Read a report. Raises OSError, CorruptFileError or IncompatibleFileError."""
    try:
        return MachineReport.from_json(read_json(path, SCHEMA))
    except CorruptFileError as error:
        raise CorruptFileError(f"{path}: {error}") from error


def write(report: MachineReport, path: Path) -> None:
    """Write a report. Raises OSError."""
    write_json(path, report.to_json())


def _device(value: Any) -> ReportedDevice:
    facts, checks = value["facts"], value["checks"]
    return ReportedDevice(
        _text(value["name"]),
        None if facts is None else _facts(facts),
        None if checks is None else _checks(checks),
        _tuple(value["benchmark"], _figure),
        _text(value["problem"]),
    )


def _facts(value: Any) -> DeviceFacts:
    return DeviceFacts(
        _text(value["device"]),
        DeviceType(value["type"]).value,
        _text(value["vendor"]),
        _text(value["driver"]),
        _count(value["memory"]),
        _mapping(value["features"], _text),
        _mapping(value["limits"], _count),
        _tuple(value["storage"], _text),
        _tuple(value["compute"], _text),
        _tuple(value["quirks"], _text),
    )


def _checks(value: Any) -> QuickChecks:
    return QuickChecks(
        _count(value["selected"]),
        _count(value["passed"]),
        _number(value["seconds"]),
        _mapping(value["passed_ops"], _text),
        _tuple(value["failures"], _failure),
        _text(value["problem"]),
    )


def _failure(value: Any) -> FailedCheck:
    return FailedCheck(*(_text(value[name]) for name in ("case", "op", "dtype", "call", "problem")))


def _figure(value: Any) -> SpeedFigure:
    return SpeedFigure(
        _text(value["what"]),
        _text(value["dtype"]),
        _text(value["size"]),
        _number(value["value"]),
        _text(value["unit"]),
        _number(value["milliseconds"]),
        _text(value["problem"]),
    )


def _baseline(value: Any) -> Baseline:
    figures = _tuple(value["benchmark"], _figure)
    return Baseline(_text(value["name"]), _text(value["device"]), figures, _text(value["problem"]))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > LONGEST_TEXT:
        raise ValueError(f"{str(value)[:50]!r} is not one line of text")
    return value


def _day(value: Any) -> str:
    return date.fromisoformat(_text(value)).isoformat()


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{str(value)[:50]!r} is not a number of at least 0")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{str(value)[:50]!r} is not a count")
    return value


def _tuple(value: Any, item: Callable[[Any], T]) -> tuple[T, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:50]!r} is not a list")
    return tuple(item(v) for v in value)


def _mapping(value: Any, item: Callable[[Any], T]) -> dict[str, T]:
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:50]!r} is not a mapping")
    return {_text(key): item(v) for key, v in value.items()}
