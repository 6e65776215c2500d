"""Vendor profiles: conservative defaults for untuned devices, one TOML file per vendor and kind of device.

    [match]
    vendors = ["arm"]               # prefixes of words in the vendor's or platform's name, in lower case; absent: every vendor
    kinds = ["gpu"]                 # values of DeviceType
    [features]                      # fields of `KernelFeatures`; for absent ones the driver's values count
    group_size = 64
    vector_width = 4
    local_memory_is_real = false
    units_per_processor = 16        # compute units, as the driver counts them, that share local memory and run one group
    [choices.NAME]                  # fields of the choice of the kernel family NAME (see `polyhal.hal.core.kernels.tuning`)
    depth = 16
    [quirks]                        # workarounds to switch on or off (see `polyhal.backends.opencl_c.quirks`)
    builtin_prefetch = false
    [[architectures]]               # fields of `polyhal.backends.opencl_c.occupancy.Architecture`; the first that fits
    name = "gcn"
    [[matrix_units]]                # fields of `polyhal.backends.opencl_c.matrix_units.MatrixUnit`, fastest first
    name = "mfma"

A profile that names vendors takes precedence over one that does not. Its values are limited by the device's
capabilities.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources

from polyhal.backends.common.quirks import declared
from polyhal.backends.opencl_c import matrix_units, occupancy
from polyhal.backends.opencl_c.matrix_units import MatrixUnit
from polyhal.backends.opencl_c.occupancy import Architecture
from polyhal.backends.opencl_c.quirks import DriverQuirks
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.settings import toml_schema
from polyhal.hal.core.settings.toml_schema import Key, Rule, TableSchema

_PACKAGE = "polyhal.backends.opencl_c.profiles"
_NAMES = Rule(lambda names: all(n == n.lower() for n in names), "names in lower case")
_SIZE = Key(int, optional=True)
_SCHEMA = TableSchema(
    {
        "match": TableSchema(
            {
                "kinds": Key(str, many=True, choices=tuple(DeviceType)),
                "vendors": Key(str, many=True, optional=True, rule=_NAMES),
            }
        ),
        "features": TableSchema(
            {
                **dict.fromkeys(("group_size", "vector_width", "units_per_processor"), _SIZE),
                "local_memory_is_real": Key(bool, optional=True),
            },
            optional=True,
        ),
        "choices": TableSchema(others=TableSchema(others=Key(int, zero=True)), optional=True),
        "quirks": TableSchema(dict.fromkeys(declared(DriverQuirks), Key(bool, optional=True)), optional=True),
        "architectures": occupancy.SCHEMA,
        "matrix_units": matrix_units.SCHEMA,
    }
)


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
    """Parse a profile from TOML. Raises ValueError with all faults."""
    data = toml_schema.parse(f"profile {name}", text, _SCHEMA)
    match = data["match"]
    return VendorProfile(
        name,
        frozenset(map(DeviceType, match["kinds"])),
        tuple(match.get("vendors", ())),
        choices=data.get("choices", {}),
        quirks=data.get("quirks", {}),
        architectures=tuple(occupancy.parse(a) for a in data.get("architectures", ())),
        matrix_units=tuple(matrix_units.parse(u) for u in data.get("matrix_units", ())),
        **data.get("features", {}),
    )
