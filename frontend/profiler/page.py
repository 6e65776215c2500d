"""A profile as one HTML page: figures, timeline, roofline, memory and tables."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from polyhal.hal.core.execution.location import SourceLocation
from polyhal.parallel.device_rates import device_rates
from polyhal.profiler.records import LaunchRecord
from polyhal.profiler.rows import CAPTURED, Row, gaps
from polyhal.profiler.table import short_line, summary

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.profiler.profile import Profile

_LIMIT = 20_000
"""Maximum number of calls and of launches in the timeline, so that the page stays below about 5 MB."""


_GAPS = 20
"""Number of gaps that are listed."""


def page(profile: Profile) -> str:
    """Return the page. Names and lines of the program are data of its script, never markup."""
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    data = json.dumps(_data(profile), separators=(",", ":")).replace("<", "\\u003c")
    names = ", ".join(f"{d.name} {d.info.name}" for d in profile.devices)
    return template.replace("<!--DEVICES-->", html.escape(names)).replace("<!--DATA-->", data)


def _data(profile: Profile) -> dict[str, Any]:
    records = profile.records
    start = records.begin
    texts = _Texts()
    numbers = {id(call): k for k, call in enumerate(records.calls[:_LIMIT])}
    waited = sum(c.waited for c in records.calls) + sum(c.waited for c in records.copies)
    in_ops = sum(c.host for c in records.calls)
    in_copies = sum(c.end - c.begin - c.waited for c in records.copies)
    return {
        "summary": summary(profile),
        "virtual": profile.is_virtual,
        "elapsed": profile.elapsed / 1e3,
        "busy": profile.busy / 1e3,
        "host": {
            "ops": in_ops / 1e3,
            "copies": in_copies / 1e3,
            "waiting": waited / 1e3,
            "program": max(profile.elapsed - in_ops - in_copies - waited, 0) / 1e3,
        },
        "texts": texts.all,
        "ranges": [[texts(r.name), (r.begin - start) / 1e3, (r.end - r.begin) / 1e3] for r in records.ranges],
        "calls": [
            [
                texts(c.op),
                (c.begin - start) / 1e3,
                (c.end - c.begin) / 1e3,
                texts(f"{', '.join(c.operands)} → {', '.join(c.results)}" if c.results else ", ".join(c.operands)),
                texts(_location(c.location)),
                c.location.module,
            ]
            for c in records.calls[:_LIMIT]
        ],
        "copies": [
            [texts(c.direction), (c.begin - start) / 1e3, (c.end - c.begin) / 1e3, c.nbytes, c.waited / 1e3]
            for c in records.copies[:_LIMIT]
        ],
        "launches": [
            [
                texts(x.kernel),
                (x.begin - start) / 1e3,
                (x.end - x.begin) / 1e3,
                texts(x.device),
                texts(x.op),
                numbers.get(id(x.call), -1),
                texts(_location(x.location)),
                x.location.module,
            ]
            for x in records.launches[:_LIMIT]
        ],
        "left_out": max(len(records.calls) - _LIMIT, 0) + max(len(records.launches) - _LIMIT, 0),
        "memory": [[texts(m.device), (m.at - start) / 1e3, m.used] for m in _thinned(records.memory)],
        "rates": _rates(profile.devices),
        "ops": [_row(r) for r in profile.ops.values() if r.name != CAPTURED or r.total],
        "kernels": [_row(r) for r in profile.kernels.values()],
        "modules": [_row(r) for r in profile.modules.values()],
        "lines": [_row(r, short_line(r.name)) for r in profile.lines.values()],
        "moves": [_row(r) for r in profile.copies.values()],
        "gaps": [_gap(gap) for gap in gaps(records.launches, _GAPS)],
        "host_work": [[op, calls, nbytes] for op, (calls, nbytes) in sorted(profile.host_work.items())],
    }


class _Texts:
    """Texts that occur many times, by number."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.all)
            self.all.append(text)
        return number


def _rates(devices: Iterable[Device]) -> list[dict[str, Any]]:
    """Return the measured limits of each device, for the roofline."""
    found = []
    for device in devices:
        rates = device_rates(device)
        found.append(
            {"device": f"{device.name} {device.info.name}", "flops": rates.flops, "bandwidth": rates.bandwidth}
        )
    return found


def _row(row: Row, name: str = "") -> list[Any]:
    facts = row.facts
    return [
        name or row.name,
        row.calls,
        row.total / 1e3,
        row.waited / 1e3,
        row.device / 1e3,
        row.launches,
        row.flops,
        row.nbytes,
        "" if facts is None or not facts.group else "x".join(map(str, facts.group)),
        "" if facts is None or facts.registers is None else facts.registers,
        "" if facts is None or facts.local_memory is None else facts.local_memory,
    ]


def _gap(gap: tuple[int, LaunchRecord, LaunchRecord]) -> list[Any]:
    """Return the line that ended a gap, its microseconds, and the kernels around it."""
    nanoseconds, before, after = gap
    line = short_line(after.location.text) if after.location.file else ""
    return [line, nanoseconds / 1e3, before.kernel, after.kernel]


def _location(location: SourceLocation) -> str:
    return "; ".join([short_line(location.text)] * bool(location.file) + location.notes)


def _thinned(samples: Sequence[Any]) -> Sequence[Any]:
    """Return at most 4,000 samples, the largest of each interval."""
    most = 4_000
    if len(samples) <= most:
        return samples
    size = -(-len(samples) // most)
    return [max(samples[k : k + size], key=lambda m: m.used) for k in range(0, len(samples), size)]


__all__ = ["page"]
