"""Matrix units of GPUs (shaders/opencl/lib/matrix_unit.h): the devices that have them, and tiles.

Vendors' profiles declare them. None has run on hardware of the project, so a device uses them only after `polyhal
verify --units` has certified them on it (see `polyhal.hal.core.kernels.certified_units`). NVIDIA's tensor cores are measured
and have separate kernels.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.opencl.raw_info import raw_info
from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.kernels import certified_units
from polyhal.hal.core.kernels.certified_units import Units
from polyhal.hal.core.kernels.library import KernelOverrides, digest
from polyhal.hal.core.settings.toml_schema import Key, Rule, TableSchema
from polyhal.hal.dtypes import DType, as_dtype

if TYPE_CHECKING:
    from polyhal.backends.opencl.capabilities import OpenCLFeatures

KERNELS = ("gemm/matrix_unit.cl",)
"""Kernel files that use matrix units."""
_SUB_GROUP_SIZES, _MOST_SIZES = 0x4108, 8
"""CL_DEVICE_SUB_GROUP_SIZES_INTEL of cl_intel_required_subgroup_size, and the maximum number of sizes to query."""


@dataclass(frozen=True, slots=True)
class UnitTile:
    """A tile of gemm/matrix_unit.cl; each wave computes wave_rows x wave_columns of it."""

    rows: int
    columns: int
    wave_rows: int
    wave_columns: int

    @property
    def waves(self) -> int:
        """Waves per group."""
        return self.rows // self.wave_rows * (self.columns // self.wave_columns)

    @property
    def macros(self) -> dict[str, int]:
        """Definitions for the kernel."""
        return {
            "TILE_ROWS": self.rows,
            "TILE_COLUMNS": self.columns,
            "WAVE_ROWS": self.wave_rows,
            "WAVE_COLUMNS": self.wave_columns,
        }


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """A unit that multiplies blocks of matrices, or an instruction that adds products, on one family of devices."""

    name: str
    """Name; lib/matrix_unit.h defines `UNIT_` with the name in capitals."""
    description: str
    source: str
    dtypes: tuple[DType, ...]
    """Dtypes of operands; sums are float32."""
    lanes: int
    """Work-items per wave."""
    large: UnitTile
    small: UnitTile
    """Tile for products that fill few large tiles."""
    devices: tuple[str, ...] = ()
    """Regular expressions; one has to match a device's name. Empty for every device with the extension."""
    extension: str = ""
    """Extension of devices with the unit, whose narrowest sub-groups have `lanes` lanes; empty without an extension."""

    @property
    def macros(self) -> dict[str, str | int]:
        """Definitions for the kernel."""
        return {"UNIT": f"UNIT_{self.name.upper()}", "LANES": self.lanes}


def _has_whole_waves(tile: list[int]) -> bool:
    return len(tile) == len(fields(UnitTile)) and not tile[0] % tile[2] and not tile[1] % tile[3]


_TILE = Key(
    int,
    many=True,
    rule=Rule(_has_whole_waves, "rows and columns of a tile, and rows and columns of a wave that divide them"),
)
_NAMED = Rule(bool, "a list with a name or more")
SCHEMA = TableSchema(
    {
        **dict.fromkeys(("name", "description", "source"), Key(str)),
        "dtypes": Key(str, many=True, choices=tuple(d.name for d in dtypes.ALL)),
        "lanes": Key(int),
        "large": _TILE,
        "small": _TILE,
        "devices": Key(str, many=True, optional=True, rule=_NAMED),
        "extension": Key(str, optional=True),
    },
    many=True,
    optional=True,
)
"""Matrix units in a vendor profile."""


def parse(facts: Mapping[str, Any]) -> MatrixUnit:
    """Return the unit of a valid entry of a profile. Raises ValueError for a unit that every device would have."""
    given = {
        **facts,
        "dtypes": tuple(as_dtype(d) for d in facts["dtypes"]),
        "devices": tuple(facts.get("devices", ())),
        **{size: UnitTile(*facts[size]) for size in ("large", "small")},
    }
    unit = MatrixUnit(**given)
    if not unit.devices and not unit.extension:
        raise ValueError(f"the unit {unit.name} is on every device; expected devices or an extension")
    return unit


def present(units: Collection[MatrixUnit], device: Any, features: OpenCLFeatures) -> tuple[MatrixUnit, ...]:
    """Return the units of a profile that a device has, certified or not."""
    if features.cpu or not features.fp16 or not features.local_memory_is_real:
        return ()
    extensions = frozenset(device.extensions.split())
    return tuple(u for u in units if _has(device, extensions, u) and u.lanes * u.large.waves <= features.max_group_size)


def _has(device: Any, extensions: Collection[str], unit: MatrixUnit) -> bool:
    if unit.devices and not any(re.search(pattern, device.name) for pattern in unit.devices):
        return False
    if not unit.extension:
        return True
    return unit.extension in extensions and unit.lanes == min(_sub_group_sizes(device), default=0)


def _sub_group_sizes(device: Any) -> Iterator[int]:
    """Yield the sub-group sizes that the driver supports."""
    described = getattr(device, "sub_group_sizes", None)
    if described is not None:
        yield from described
        return
    for count in range(_MOST_SIZES, 0, -1):
        answer = raw_info(device, _SUB_GROUP_SIZES, 8 * count)
        if answer:
            sizes = (int.from_bytes(answer[i : i + 8], "little") for i in range(0, len(answer), 8))
            yield from (s for s in sizes if s)  # entries that the driver did not write are 0
            return


def certified(
    units: Collection[MatrixUnit], device: Any, info: DeviceInfo, features: OpenCLFeatures, *, forced: bool = False
) -> tuple[OpenCLFeatures, Units]:
    """Return the features with certified units (all if `forced`), and the certification state of all units."""
    found = present(units, device, features)
    available = {u.name: u.description for u in found}
    known = certified_units.units(info, available, KERNELS, _texts(info) if found else "", forced=forced)
    return replace(features, matrix_units=tuple(u for u in found if u.name in known.in_use)), known


def _texts(info: DeviceInfo) -> str:
    """Return the digest of the kernels and their headers, as compiled for a device."""
    sources = SourceFolder("polyhal.shaders.opencl", KernelOverrides(info).text)
    names = sorted(frozenset().union(*map(sources.closure, KERNELS)))
    return digest("\0".join(f"{name}\0{sources.read(name)}" for name in names))
