"""Vendor profiles: conservative defaults for untuned devices, one TOML file per vendor and kind of device.

    [match]
    vendors = ["arm"]               # prefixes of words in the vendor's or platform's name, in lower case; absent: every vendor
    kinds = ["gpu"]                 # values of DeviceType
    [features]                      # fields of `OpenCLFeatures` that the profile overrides; the driver reports the
    others group_size = 64
    vector_width = 4
    local_memory_is_real = false
    units_per_processor = 16        # compute units, as the driver counts them, that share local memory and run one
    group [choices.NAME]                  # fields of the choice of the kernel family NAME (see
    `polyhal.hal.kernels.tuning`) depth = 16
    [quirks]                        # workarounds to switch on or off (see `polyhal.backends.opencl.quirks`)
    builtin_prefetch = false
    [[architectures]]               # fields of `polyhal.backends.opencl.occupancy.Architecture`; the first that fits
    name = "gcn"
    [[matrix_units]]                # fields of `polyhal.backends.opencl.matrix_units.MatrixUnit`, fastest first
    name = "mfma"

A profile that names vendors takes precedence over one that does not. Its values are limited by the device's
capabilities.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from polyhal.backends.common.quirks import declared
from polyhal.backends.opencl import matrix_units
from polyhal.backends.opencl.matrix_units import MatrixUnit
from polyhal.backends.opencl.occupancy import Architecture
from polyhal.backends.opencl.quirks import OpenCLQuirks
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.settings import toml

_PACKAGE = "polyhal.backends.opencl.profiles"
_FEATURES: dict[str, type[int]] = {
    "group_size": int, "vector_width": int, "units_per_processor": int, "local_memory_is_real": bool,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class VendorProfile:
    """Defaults for the devices of one vendor and kind."""

    name: str
    kinds: frozenset[DeviceType]
    vendors: tuple[str, ...] = ()
    group_size: int | None = None
    vector_width: int | None = None
    units_per_processor: int = 1
    local_memory_is_real: bool | None = None
    choices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    quirks: Mapping[str, bool | int] = field(default_factory=dict)
    architectures: tuple[Architecture, ...] = ()
    matrix_units: tuple[MatrixUnit, ...] = ()

    def fits(self, vendor: str, platform: str, kind: DeviceType) -> bool:
        """Return whether the profile is for a device. Names match at the start of a word: "arm" does not match "charm"."""
        text = f"{vendor} {platform}".lower()
        return kind in self.kinds and (
            not self.vendors or any(re.search(rf"\b{re.escape(v)}", text) for v in self.vendors)
        )


def shipped() -> list[VendorProfile]:
    """Return all profiles of the package, those that name vendors first."""
    files = (f for f in resources.files(_PACKAGE).iterdir() if f.name.endswith(".toml"))
    profiles = [parse(f.name.removesuffix(".toml"), f.read_text(encoding="utf-8")) for f in files]
    return sorted(profiles, key=lambda p: (not p.vendors, p.name))


def choose(profiles: Iterable[VendorProfile], vendor: str, platform: str, kind: DeviceType) -> VendorProfile:
    """Return the first profile that fits a device, or an empty one if none does."""
    return next((p for p in profiles if p.fits(vendor, platform, kind)), VendorProfile("none", frozenset()))


def parse(name: str, text: str) -> VendorProfile:
    """Parse a profile from TOML. Raises ValueError with the names of all invalid entries."""
    try:
        data = toml.parse(text)
        match, features, choices = data.pop("match"), data.pop("features", {}), data.pop("choices", {})
        quirks = data.pop("quirks", {})
        kinds = frozenset(DeviceType(k) for k in match.pop("kinds"))
        vendors = tuple(match.pop("vendors", ()))
        architectures = tuple(_architecture(a) for a in data.pop("architectures", ()))
        units = tuple(matrix_units.parse(u) for u in data.pop("matrix_units", ()))
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"profile {name}: {type(error).__name__}: {error}") from error
    unknown = [*data, *match, *(set(features) - set(_FEATURES)), *(set(quirks) - set(declared(OpenCLQuirks)))]
    wrong = [k for k, v in features.items() if k not in unknown and (type(v) is not _FEATURES[k] or int(v) < 0)]
    wrong += [f"{f}.{k}" for f, values in choices.items() for k, v in values.items() if type(v) is not int]
    wrong += [k for k, v in quirks.items() if k not in unknown and type(v) not in (bool, int)]
    if unknown or wrong or any(v != v.lower() for v in vendors):
        raise ValueError(f"profile {name}: {', '.join(map(str, [*unknown, *wrong])) or 'vendors'} cannot be used")
    return VendorProfile(
        name, kinds, vendors, choices=choices, quirks=quirks, architectures=architectures, matrix_units=units, **features
    )


def _architecture(facts: dict[str, Any]) -> Architecture:
    """Parse an architecture. Raises TypeError for missing or unknown fields, ValueError unless numbers are positive."""
    found = Architecture(**{**facts, "devices": tuple(facts.get("devices", ()))})
    wrong = [f.name for f in fields(Architecture) if f.type == "int" and not _is_positive(getattr(found, f.name))]
    if wrong:
        raise ValueError(f"expected positive integers: {', '.join(wrong)}")
    return found


def _is_positive(value: Any) -> bool:
    return type(value) is int and value > 0
