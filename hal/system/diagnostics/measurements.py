"""Measurements of a device, made by calibration, to which the simulator fits a card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from polyhal.hal.compile.ir.graph import Graph, Node, Value
from polyhal.hal.layout import Spec


class MeasuredCall(NamedTuple):
    """An op, as executed by a captured step on the device."""

    op: str
    inputs: tuple[Spec | None, ...]
    """Specs of the inputs; None for numbers and absent operands."""
    outputs: tuple[Spec, ...]
    params: Mapping[str, Any]


class MeasuredSample(NamedTuple):
    """A micro-benchmark: its calls, and the seconds per replay of many consecutive replays."""

    calls: tuple[MeasuredCall, ...]
    seconds: float


class DriverTimes(NamedTuple):
    """Times of the driver in seconds."""

    submit: float
    """Host time of a captured step, without its kernels."""
    replay: float
    """Host time for each kernel of a captured step."""
    kernel: float
    """Time between consecutive tiny kernels: the maximum of the host's and the device's time."""
    turnaround: float
    """Time from the submission of a step with one kernel until the waiting host continues."""


class LinkTimes(NamedTuple):
    """Measurements of copies from and to the device."""

    bandwidth: float
    """Bytes per second."""
    latency: float
    """Seconds of a copy of a few bytes."""


class MeasuredDevice(NamedTuple):
    """Properties reported by the device."""

    name: str
    vendor: str
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
    """Rate of multiply-adds in registers by dtype, in operations per second, for dtypes that can be measured."""
    samples: tuple[MeasuredSample, ...]
    seconds: float
    """Duration of the measurement in seconds."""


def measured_calls(recorded: Graph, planned: Graph) -> tuple[MeasuredCall, ...]:
    """Return the calls of a captured step on the device after fusion, without views.

    If passes decompose ops for which the device has no kernel, the recorded calls are returned instead.
    """
    before, after = _calls(recorded), _calls(planned)
    return before if len(after) > len(before) else after


def _calls(graph: Graph) -> tuple[MeasuredCall, ...]:
    return tuple(_call(graph, node) for node in graph.nodes if not graph.is_view(node))


def _call(graph: Graph, node: Node) -> MeasuredCall:
    inputs = (graph.specs[x.index] if isinstance(x, Value) else None for x in node.inputs)
    tensors = tuple(s if isinstance(s, Spec) else None for s in inputs)
    return MeasuredCall(node.op.name, tensors, tuple(graph.tensor(i) for i in node.outputs), node.bound)
