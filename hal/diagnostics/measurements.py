"""What calibration measures on a device: data that the frontend collects, and from which the simulator makes a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from polyhal.hal.layout import Spec


class MeasuredCall(NamedTuple):
    """An op as a captured step runs it on the device."""

    op: str
    inputs: tuple[Spec | None, ...]
    """None stands for numbers and absent operands."""
    outputs: tuple[Spec, ...]
    params: Mapping[str, Any]


class MeasuredSample(NamedTuple):
    """One micro-benchmark: what it ran, and the seconds of one replay of many in a row."""

    calls: tuple[MeasuredCall, ...]
    seconds: float


class DriverTimes(NamedTuple):
    """Seconds that the driver takes."""

    submit: float
    """Of the host, for a captured step, whatever is in it."""
    replay: float
    """Of the host, for each kernel of a captured step."""
    kernel: float
    """From one tiny kernel to the next: the longer of what the host and what the device need."""
    turnaround: float
    """From the submission of a step of one kernel until the host that waits for it goes on."""


class LinkTimes(NamedTuple):
    """Copies from and to the device."""

    bandwidth: float
    """Bytes per second."""
    latency: float
    """Seconds of a copy of nearly nothing."""


class MeasuredDevice(NamedTuple):
    """What the device says of itself."""

    name: str
    driver: str
    type: str
    compute_units: int
    memory: int
    max_allocation: int
    local_memory: int
    unified_memory: bool


class Measurements(NamedTuple):
    """Everything that was measured on one device."""

    facts: MeasuredDevice
    when: str
    driver: DriverTimes
    link: LinkTimes
    peak: Mapping[str, float]
    """Multiply-adds in registers by dtype, in operations per second, as far as the device can be asked."""
    samples: tuple[MeasuredSample, ...]
    seconds: float
    """How long it took."""
