"""Matrix units of GPUs (shaders/opencl/lib/matrix_unit.h): declarations and tiles.

Vendors' profiles declare them. None has run on hardware of the project, so a device uses them only after `polyhal
verify --units` has certified them on it (see `polyhal.hal.core.kernels.certified_units`). NVIDIA's tensor cores are measured
and have separate kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core.settings.toml_schema import Key, Rule, TableSchema
from polyhal.hal.dtypes import DType, as_dtype

KERNELS = ("gemm/matrix_unit.cl",)
"""Kernel files that use matrix units."""


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
