"""Records of a profile: calls of ops, launches, copies, ranges and samples of memory. All times are in nanoseconds.

Host times are those of `time.perf_counter_ns`; times of launches are converted to the same clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from polyhal.hal.core.execution.location import UNKNOWN, SourceLocation
from polyhal.hal.launch_resources import LaunchResources


@dataclass(slots=True)
class CallRecord:
    """One call of an op, as the host saw it. In a captured step, one replay of its part on one device."""

    op: str
    device: str
    begin: int
    end: int
    waited: int = 0
    """Time in which the host waited for work that other calls had enqueued."""
    operands: tuple[str, ...] = ()
    """Dtypes and shapes of tensors, and numbers, as text."""
    results: tuple[str, ...] = ()
    flops: int = 0
    """Additions and multiplications by the op's cost rule; 0 without one."""
    nbytes: int = 0
    """Bytes of operands and results: the least traffic of one launch."""
    location: SourceLocation = UNKNOWN
    launches: list[LaunchRecord] = field(default_factory=list, repr=False, compare=False)
    """Its launches, in the order in which they were enqueued."""

    @property
    def host(self) -> int:
        """Time that the host spent on this call, without waiting."""
        return self.end - self.begin - self.waited


@dataclass(slots=True)
class LaunchRecord:
    """One launch, or one copy of the device that overlaps launches."""

    kernel: str
    device: str
    begin: int
    end: int
    call: CallRecord | None = None
    """The call that made it; None for launches of other threads on the same device."""
    op: str = ""
    """The op that it computes: of `call`, or of a node of a captured step."""
    location: SourceLocation = UNKNOWN
    flops: int = 0
    """The op's additions and multiplications, at the first of its launches."""
    nbytes: int = 0
    """The op's bytes, at the first of its launches."""
    facts: LaunchResources | None = None


class HostCopy(NamedTuple):
    """A copy between the host and a device, as the host saw it."""

    direction: str
    """`upload` or `read`."""
    device: str
    nbytes: int
    begin: int
    end: int
    waited: int = 0


class NamedRange(NamedTuple):
    """A block of `record_function`."""

    name: str
    begin: int
    end: int


class MemorySample(NamedTuple):
    """Bytes of a device that tensors use at a time."""

    device: str
    at: int
    used: int


@dataclass(slots=True)
class Records:
    """All that was recorded, in order of time."""

    calls: list[CallRecord] = field(default_factory=list)
    launches: list[LaunchRecord] = field(default_factory=list)
    copies: list[HostCopy] = field(default_factory=list)
    ranges: list[NamedRange] = field(default_factory=list)
    memory: list[MemorySample] = field(default_factory=list)
    begin: int = 0
    end: int = 0


__all__ = ["CallRecord", "HostCopy", "LaunchRecord", "MemorySample", "NamedRange", "Records"]
