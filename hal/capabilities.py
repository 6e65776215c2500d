"""Identity and capabilities of a device: plain, frozen data that converts to JSON and that a backend states once."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.printable import printable_line


class DeviceType(enum.StrEnum):
    """The kind of hardware, in order of preference for the default device, which also depends on speed. Software rasterizers
    are CPUs."""

    GPU = "gpu"
    INTEGRATED_GPU = "integrated_gpu"
    ACCELERATOR = "accelerator"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Identity of one device."""

    backend: str
    name: str
    type: DeviceType
    memory: int
    """Size in bytes; 0 if unknown."""
    driver: str
    id: str
    """Stable across runs, and equal for all backends that list the same physical card."""
    selector: str = "0"
    """The part after the colon in `Device("backend:selector")`."""
    vendor: str = ""
    lacks: str = ""
    """A missing common feature, such as "64-bit integers": such a device is the default only if all have one."""

    def shown(self) -> DeviceInfo:
        """Return the description with texts that are safe to print: names of drivers may contain control characters."""
        texts = (self.name, self.driver, self.vendor)
        if all(t.isprintable() for t in texts):
            return self
        name, driver, vendor = map(printable_line, texts)
        return replace(self, name=name, driver=driver, vendor=vendor)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class UnusableDevice:
    """A device that exists but that the backend cannot use: it is left out, and `polyhal doctor` says why."""

    name: str
    """A name that tells it from the devices of other drivers."""
    reason: str
    fix: str = ""
    """The remedy."""
    unexpected: bool = False
    """True if programs are warned, because an installed driver fails and a slower device may be chosen instead."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a device that the framework takes into account when it allocates and lays out tensors."""

    max_allocation: int = 0
    """Size in bytes of the largest possible allocation; 0 if it is unknown or unlimited."""
    row_alignment: int = 1
    """Bytes. Matrices are faster if their rows start at multiples of this; 1 if it makes no difference."""
    distinct_memory: int = 0
    """Bytes. Intermediate values of a captured step share no memory if they need at most this in all, unless the program sets a
    memory budget. A device that runs independent launches of a command buffer at the same time has fewer dependencies then.
    """


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Abilities of a backend on one device, beyond the required members of the contract."""

    storage: frozenset[DType] = frozenset(dtypes.ALL)
    """Dtypes that device memory can hold and that `copy` and `fill` handle: bool, int32 and float32 at least.

    Without int64, int32 takes its place on this device, also in results of ops. A tensor of any other dtype that is not listed
    raises UnsupportedDTypeError.
    """
    compute: frozenset[DType] = frozenset(dtypes.ALL)
    """Dtypes that the arithmetic core methods accept: bool, int32 and float32 at least, and none that `storage` lacks.

    The framework casts other dtypes to a supported one and back.
    """
    unary: frozenset[str] = frozenset()
    """Names that `unary` accepts in addition to the required ones, from `member_names.OPTIONAL_UNARY`."""
    binary: frozenset[str] = frozenset()
    """Names that `binary` accepts in addition to the required ones, from `member_names.OPTIONAL_BINARY`."""
    reduce: frozenset[str] = frozenset()
    """Names that `reduce` accepts in addition to the required ones, from `member_names.OPTIONAL_REDUCE`."""
    unified_memory: bool = False
    """True if the device works in the host's own memory. The data loader then skips staging in pinned memory."""
    limits: Limits = field(default_factory=Limits)
    features: Mapping[str, str] = field(default_factory=dict)
    """Further facts about hardware and driver under the backend's own names. `polyhal doctor` prints them."""
    settings: frozenset[str] = frozenset()
    """Settings of the process that `lower` expects among its parameters: `precision`, `deterministic`."""
    suballocation: bool = False
    """True if one launch may bind several ranges of one allocation, some to read and some to write.

    Captured steps then place tensors in common arenas instead of making each an allocation of its own.
    """
    reference: bool = False
    """True if other backends are compared with this one.

    Captured steps then run every op as written, unfused, so that results agree with eager execution bit by bit.
    """
    strided_ops: frozenset[str] = frozenset()
    """Ops whose native kernels accept tensors, outputs included, with any strides as long as the last one is 1."""
    quirks: Mapping[str, str] = field(default_factory=dict)
    """Workarounds for the driver that are in force, by name, each with the reason. `polyhal doctor` prints them."""
    channels_last: frozenset[DType] = frozenset()
    """Dtypes of images that convolutions read and write fastest in the order (image, height, width, channel).

    Captured steps then keep images in this order from one convolution to the next.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data, sets as sorted lists."""
        return {
            "storage": sorted(d.name for d in self.storage),
            "compute": sorted(d.name for d in self.compute),
            "unary": sorted(self.unary),
            "binary": sorted(self.binary),
            "reduce": sorted(self.reduce),
            "unified_memory": self.unified_memory,
            "limits": asdict(self.limits),
            "features": dict(self.features),
            "settings": sorted(self.settings),
            "suballocation": self.suballocation,
            "reference": self.reference,
            "strided_ops": sorted(self.strided_ops),
            "channels_last": sorted(d.name for d in self.channels_last),
            "quirks": dict(self.quirks),
        }
