"""What a device is and can do: plain, frozen, JSON-able data that a backend states once."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType


class DeviceType(enum.StrEnum):
    """The kind of hardware, in the order in which a default is chosen. Software rasterisers are CPUs."""

    GPU = "gpu"
    INTEGRATED_GPU = "integrated_gpu"
    ACCELERATOR = "accelerator"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Identity of one device. `memory` is in bytes; `id` is stable across runs and equal for one physical card."""

    backend: str
    name: str
    type: DeviceType
    memory: int
    driver: str
    id: str
    selector: str = "0"
    """What follows the colon in `Device("backend:selector")`."""
    vendor: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of a device; 0 means unknown or unlimited."""

    max_allocation: int = 0
    local_memory: int = 0
    max_group_size: int = 0
    max_groups_per_axis: int = 0
    compute_units: int = 0
    alignment: int = 64
    """Bytes: every allocation starts at a multiple of this, and sub-allocations keep it."""
    row_alignment: int = 1
    """Bytes at multiples of which the rows of large matrices had better begin; 1 where it makes no difference."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do on one device, beyond the required members of the contract."""

    storage: frozenset[DType] = frozenset(dtypes.ALL)
    """Dtypes that may lie in device memory and that `copy` and `fill` handle."""
    compute: frozenset[DType] = frozenset(dtypes.ALL)
    """Dtypes that the arithmetic core methods accept; others are cast to one that holds them."""
    unary: frozenset[str] = frozenset()
    """Names that `unary` takes beyond the required ones."""
    binary: frozenset[str] = frozenset()
    """Names that `binary` takes beyond the required ones."""
    reduce: frozenset[str] = frozenset()
    """Names that `reduce` takes beyond the required ones."""
    unified_memory: bool = False
    """Host and device share memory, so that mapping a buffer moves no bytes."""
    float_atomics: bool = False
    subgroups: bool = False
    limits: Limits = field(default_factory=Limits)
    features: Mapping[str, str] = field(default_factory=dict)
    """Probed extras, by the backend's own names, for `doctor`."""
    settings: frozenset[str] = frozenset()
    """Settings of the process that `lower` wants to find among the parameters: `precision`, `deterministic`."""
    shared_blocks: bool = False
    """Whether one launch may read and write different parts of one allocation, so that a step's tensors can share blocks."""
    reference: bool = False
    """Others are compared with it: captured steps run the ops as they were written, so that results agree bit by bit."""
    placed: frozenset[str] = frozenset()
    """Ops whose kernels, where `lower` has one, read and write tensors with any strides whose last is 1, results included."""

    def to_json(self) -> dict[str, Any]:
        return {
            "storage": sorted(d.name for d in self.storage),
            "compute": sorted(d.name for d in self.compute),
            "unary": sorted(self.unary),
            "binary": sorted(self.binary),
            "reduce": sorted(self.reduce),
            "unified_memory": self.unified_memory,
            "float_atomics": self.float_atomics,
            "subgroups": self.subgroups,
            "limits": asdict(self.limits),
            "features": dict(self.features),
            "settings": sorted(self.settings),
            "shared_blocks": self.shared_blocks,
            "reference": self.reference,
            "placed": sorted(self.placed),
        }
