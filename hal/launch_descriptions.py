"""Optional descriptions of recorded launches, from which a step is exported to run without this library.

A command buffer with the method `describe` (`DescribesLaunches`) can be exported; the contract requires none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

Access = Literal["read", "write", "read_write"]
ScalarCode = Literal["int", "uint", "long", "ulong", "float", "double"]


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel as its compiler takes it. Equal texts with equal options are one kernel."""

    name: str
    language: str
    """wgsl or opencl-c."""
    entry: str
    source: str
    options: str = ""
    group: tuple[int, ...] = ()
    """Invocations (work-items) of a group along each axis."""


@dataclass(frozen=True, slots=True)
class MemoryArgument:
    """Memory that a launch reads or writes."""

    handle: Any
    """The backend's allocation, or a `BindingSlot` for memory that is bound at each run. None for constants."""
    start: int = 0
    """First byte that is bound."""
    nbytes: int = 0
    """Bytes that are bound; 0 for all from `start`."""
    access: Access = "read_write"
    constant: bytes = b""
    """Contents of memory that belongs to the launch and never changes."""
    binding: int = 0
    """Number under which the kernel declares it, where its language numbers bindings."""


@dataclass(frozen=True, slots=True)
class NumberPlace:
    """Bytes of an argument that hold a number which may change from run to run."""

    offset: int
    type: ScalarCode
    number: Any
    """A `RuntimeScalar`."""


@dataclass(frozen=True, slots=True)
class BytesArgument:
    """A scalar or a struct, passed by value; little-endian."""

    data: bytes
    numbers: tuple[NumberPlace, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalArgument:
    """Local memory of each group."""

    nbytes: int


LaunchArgument = MemoryArgument | BytesArgument | LocalArgument


@dataclass(frozen=True, slots=True)
class CopyBefore:
    """Copy of one buffer's contents to another before a launch, where an API forbids that a launch uses the first itself."""

    source: MemoryArgument
    target: MemoryArgument


@dataclass(frozen=True, slots=True)
class DescribedLaunch:
    """One launch: the position of the call that made it, and everything that its enqueueing takes."""

    call: int
    kernel: KernelText
    arguments: tuple[LaunchArgument, ...]
    """In the kernel's order."""
    grid: tuple[int, ...]
    """Groups along each axis."""
    copies: tuple[CopyBefore, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceNames:
    """Names by which a program that runs without this library finds the device for which its kernels were chosen."""

    platform: str
    device: str
    driver: str
    extensions: frozenset[str]


@runtime_checkable
class NamesDevice(Protocol):
    """A backend that reports the driver's own names."""

    def device_names(self) -> DeviceNames:
        """Return the names as the driver reports them."""


@runtime_checkable
class DescribesLaunches(Protocol):
    """A command buffer that describes its launches."""

    def describe(self) -> Sequence[DescribedLaunch]:
        """Return its launches in order. Raises BackendError for a launch that cannot be described."""


@runtime_checkable
class RecordsOnly(Protocol):
    """A backend that records launches and computes nothing. Constants of its captured steps are computed by NumPy."""

    records_only: bool
    """Always True."""
