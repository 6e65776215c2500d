"""Driver quirks: workarounds that are keyed on the driver, each declared once with its reason, evidence and a link.

A backend declares its quirks as fields of a frozen dataclass, one `quirk(...)` per field, and matches them against the
driver of each device that it opens. All other code reads fields by name. So driver names occur in one file only, and a
workaround can be searched for, listed by `polyhal doctor`, switched off for a measurement, and removed.

The design follows the toggles of Dawn, Chromium's WebGPU: https://dawn.googlesource.com/dawn/+/HEAD/src/dawn/native/Toggles.cpp
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

_METADATA = "quirk"


@dataclass(frozen=True, slots=True)
class DriverId:
    """Strings that identify a driver and its device."""

    platform: str
    """Platform or graphics API."""
    version: str
    """Version of the driver."""
    device: str
    """Name of the device."""
    cpu: bool
    """True if the device is a processor."""

    def before(self, major: int, minor: int = 0) -> bool:
        """Return whether the driver's version is older than `major`.`minor`, the first version known to be good.

        Compares the first number of the version string and the one after its dot, if any: (22, 3) for "FooCL 22.3.6
        (LLVM 15.0.6)", (580, 0) for "580". A pre-release counts as its release. True if there is no number: an
        unnecessary workaround costs time, a missing one causes wrong results.
        """
        numbers = re.search(r"(\d+)(?:\.(\d+))?", self.version)
        return numbers is None or (int(numbers[1]), int(numbers[2] or 0)) < (major, minor)


@dataclass(frozen=True, slots=True)
class QuirkInfo:
    """The declaration of one quirk."""

    when: Callable[[DriverId], bool | int]
    """Function that returns the value for a driver; False or 0 if the workaround is not needed."""
    reason: str
    """Defect or slowness of the driver."""
    evidence: str
    """Observation: the driver's version and a figure or a failure."""
    link: str
    """A bug report or documentation; empty if there is none."""


Q = TypeVar("Q")
"""A backend's dataclass of quirks."""


def quirk(when: Callable[[DriverId], bool | int], *, reason: str, evidence: str, link: str = "") -> Any:
    """Declare a quirk: the default of a field of type bool or int."""
    return dataclasses.field(default=False, metadata={_METADATA: QuirkInfo(when, reason, evidence, link)})


def declared(kind: type[Any]) -> dict[str, QuirkInfo]:
    """Return the declarations of a backend's quirks by name."""
    return {f.name: f.metadata[_METADATA] for f in dataclasses.fields(kind)}


def match_quirks(kind: type[Q], driver: DriverId) -> Q:
    """Return the quirks for a driver."""
    return kind(**{name: info.when(driver) for name, info in declared(kind).items()})


def with_overrides(quirks: Q, values: Mapping[str, bool | int]) -> Q:
    """Return `quirks` with some values replaced. Raises TypeError for an undeclared name."""
    return dataclasses.replace(quirks, **values)  # type: ignore[type-var]


def active(quirks: Any) -> dict[str, str]:
    """Return the reasons of the active quirks by name, each with its value if that is a number."""
    reasons = {}
    for name, info in declared(type(quirks)).items():
        if value := getattr(quirks, name):
            reasons[name if value is True else f"{name} = {value}"] = info.reason
    return reasons


def markdown(kind: type[Any]) -> str:
    """Return the declarations of a backend's quirks as a list for the documentation."""
    lines = []
    for name, info in declared(kind).items():
        link = f" ([source]({info.link}))" if info.link else ""
        lines.append(f"- `{name}`: {info.reason}.\n  Seen: {info.evidence}{link}.\n")
    return "".join(lines)


def definitions(quirks: Any) -> dict[str, bool | int]:
    """Return preprocessor definitions for kernels: `QUIRK_NAME` for each active quirk; the others stay undefined."""
    values = {f"QUIRK_{name.upper()}": getattr(quirks, name) for name in declared(type(quirks))}
    return {name: value for name, value in values.items() if value}
