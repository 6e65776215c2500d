"""Sums of records: by op, by kernel, by module, by line of the program, and by copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.hal.launch_resources import LaunchResources
from polyhal.hal.protocol import TRANSFER
from polyhal.profiler.records import LaunchRecord, Records

CAPTURED = "captured step"
"""The name of a captured step among the ops; its launches count for the ops that they compute."""


@dataclass(slots=True)
class Row:
    """Sums over calls of one name. Times are in nanoseconds."""

    name: str
    calls: int = 0
    total: int = 0
    """Time of the host without waiting; of kernels and copies, time of the device."""
    slowest: int = 0
    waited: int = 0
    device: int = 0
    """Time of the launches on the device."""
    launches: int = 0
    flops: int = 0
    nbytes: int = 0
    facts: LaunchResources | None = None
    """Facts of the largest launch of a kernel."""

    def add(self, elapsed: int, flops: int = 0, nbytes: int = 0, waited: int = 0) -> None:
        """Count one call of `elapsed` nanoseconds."""
        self.calls += 1
        self.total += elapsed
        self.slowest = max(self.slowest, elapsed)
        self.flops += flops
        self.nbytes += nbytes
        self.waited += waited

    def add_launch(self, launch: LaunchRecord) -> None:
        """Count the time of one launch."""
        self.launches += 1
        self.device += launch.end - launch.begin

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with times in nanoseconds."""
        facts = None if self.facts is None else self.facts._asdict()
        return {
            "name": self.name,
            "calls": self.calls,
            "host_ns": self.total,
            "slowest_ns": self.slowest,
            "waited_ns": self.waited,
            "device_ns": self.device,
            "launches": self.launches,
            "flops": self.flops,
            "bytes": self.nbytes,
            "resources": facts,
        }

    @property
    def seconds(self) -> float:
        """Seconds on the device, or of the host on a device without timestamps."""
        return (self.device or self.total) * 1e-9


def op_rows(records: Records) -> dict[str, Row]:
    """Return the ops by name, with their time on host and device."""
    rows: dict[str, Row] = {}
    for call in records.calls:
        row = rows.setdefault(call.op, Row(call.op))
        captured = call.op == CAPTURED  # whose flops and bytes count for the ops in it
        row.add(call.host, 0 if captured else call.flops, 0 if captured else call.nbytes, call.waited)
    for launch in records.launches:
        if not launch.op:
            continue
        row = rows.setdefault(launch.op, Row(launch.op))
        row.add_launch(launch)
        if launch.call is not None and launch.call.op == CAPTURED:
            row.flops += launch.flops
            row.nbytes += launch.nbytes
    return rows


def kernel_rows(launches: Iterable[LaunchRecord]) -> dict[str, Row]:
    """Return the kernels by name, and copies that overlap launches under theirs."""
    rows: dict[str, Row] = {}
    largest: dict[str, int] = {}
    for launch in launches:
        row = rows.setdefault(launch.kernel, Row(launch.kernel))
        elapsed = launch.end - launch.begin
        row.add(elapsed, launch.flops, launch.nbytes)
        row.add_launch(launch)
        if launch.facts is not None and elapsed >= largest.get(launch.kernel, 0):
            largest[launch.kernel] = elapsed
            row.facts = launch.facts
    return rows


def module_rows(records: Records) -> dict[str, Row]:
    """Return time on the device by module; "" for ops outside of modules. Without timestamps, time of the host."""
    rows: dict[str, Row] = {}
    if records.launches:
        for launch in records.launches:
            if launch.kernel != TRANSFER:
                rows.setdefault(launch.location.module, Row(launch.location.module)).add_launch(launch)
        return rows
    for call in records.calls:
        rows.setdefault(call.location.module, Row(call.location.module)).add(call.host)
    return rows


def line_rows(records: Records) -> dict[tuple[str, int], Row]:
    """Return time on host and device by the line of the program that called the op, or the op that is differentiated."""
    rows: dict[tuple[str, int], Row] = {}
    for call in records.calls:
        if call.location.file:
            at = call.location.file, call.location.line
            rows.setdefault(at, Row(call.location.text)).add(call.host, waited=call.waited)
    for launch in records.launches:
        if launch.location.file:
            at = launch.location.file, launch.location.line
            rows.setdefault(at, Row(launch.location.text)).add_launch(launch)
    return rows


def copy_rows(records: Records) -> dict[str, Row]:
    """Return the copies between host and devices by direction, with the host's time."""
    rows: dict[str, Row] = {}
    for copy in records.copies:
        row = rows.setdefault(copy.direction, Row(copy.direction))
        row.add(copy.end - copy.begin - copy.waited, nbytes=copy.nbytes, waited=copy.waited)
    return rows


def busy(spans: Iterable[tuple[int, int]]) -> int:
    """Return the time that is covered by spans, which may overlap."""
    covered, until = 0, 0
    for begin, end in sorted(spans):
        begin = max(begin, until)
        if end > begin:
            covered += end - begin
            until = end
    return covered


def gaps(launches: Sequence[LaunchRecord], limit: int) -> list[tuple[int, LaunchRecord, LaunchRecord]]:
    """Return the longest times between two launches of a device in which it did nothing, with both launches."""
    found: list[tuple[int, LaunchRecord, LaunchRecord]] = []
    last: dict[str, LaunchRecord] = {}
    for launch in sorted(launches, key=lambda x: x.begin):
        before = last.get(launch.device)
        if before is not None and launch.begin > before.end:
            found.append((launch.begin - before.end, before, launch))
        if before is None or launch.end > before.end:
            last[launch.device] = launch
    return sorted(found, key=lambda gap: -gap[0])[:limit]


__all__ = ["CAPTURED", "Row", "busy", "copy_rows", "gaps", "kernel_rows", "line_rows", "module_rows", "op_rows"]
