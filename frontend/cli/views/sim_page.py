"""A run on a simulated device as a self-contained HTML page: animation, timeline, memory, predicted times, packets."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

Event = Mapping[str, Any]
"""An event of the log, as plain data."""


class PredictedTime(NamedTuple):
    """Virtual time of the kernels of one op."""

    name: str
    calls: int
    nanoseconds: int
    flops: int
    nbytes: int


class PredictedStep(NamedTuple):
    """Activity between two waits of the host. Times are in nanoseconds."""

    end: int
    duration: int
    kernels: int
    compute: int
    transfers: int


def times_per_op(log: Iterable[Event]) -> list[PredictedTime]:
    """Add up the kernels of each op, the longest first."""
    rows: dict[str, PredictedTime] = {}
    for e in log:
        if e["action"] == "execute":
            name, d = e["text"].partition("(")[0], e["details"]
            old = rows.get(name, PredictedTime(name, 0, 0, 0, 0))
            ns = old.nanoseconds + e["end_ns"] - e["start_ns"]
            rows[name] = PredictedTime(name, old.calls + 1, ns, old.flops + d["flops"], old.nbytes + d["nbytes"])
    return sorted(rows.values(), key=lambda r: (-r.nanoseconds, r.name))


def times_per_step(log: Sequence[Event]) -> list[PredictedStep]:
    """Divide the log at the ends of waits. A wait without pending work does not end a step."""
    ends = sorted({e["end_ns"] for e in log if e["action"] == "wait" and e["end_ns"] > e["start_ns"]})
    steps = []
    begin = min((e["start_ns"] for e in log), default=0)
    for end in ends:
        inside = [e for e in log if begin <= e["start_ns"] < end]
        kernels = [e["end_ns"] - e["start_ns"] for e in inside if e["action"] == "execute"]
        moved = sum(e["end_ns"] - e["start_ns"] for e in inside if e["action"] == "transfer")
        steps.append(PredictedStep(end, end - begin, len(kernels), sum(kernels), moved))
        begin = end
    return steps


def write(
    title: str, device: Mapping[str, Any], log: Sequence[Event], verified: Mapping[str, Any], packets: str
) -> str:
    """Return the page. `verified` contains the numbers of compared values, and `problems`."""
    parts = {
        "TITLE": html.escape(title),
        "DEVICE": html.escape(
            f"On a simulated {device['title']} ({device['name']}): times are virtual, results are real."
        ),
        "FACTS": _facts(log, verified),
        "PROBLEMS": "".join(f'<p class="bad"><b>{html.escape(p)}</b></p>' for p in verified["problems"]),
        "OPS": _ops(times_per_op(log)),
        "STEPS": _steps(times_per_step(log)),
        "PACKETS": html.escape(packets),
        # "</script>" in a name must not end the data.
        "DATA": json.dumps({"device": dict(device), "log": list(log)}).replace("<", "\\u003c"),
    }
    template = resources.files(__package__).joinpath("sim_page.html").read_text(encoding="utf-8")
    for name, text in parts.items():
        template = template.replace(f"<!--{name}-->", text)
    return template


def duration(nanoseconds: float) -> str:
    """Format a time with a suitable unit."""
    for limit, scale, unit in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / scale:.{0 if scale == 1 else 2}f} {unit}"
    return f"{nanoseconds / 1e9:.3f} s"


def _facts(log: Sequence[Event], verified: Mapping[str, Any]) -> str:
    total = max((e["end_ns"] for e in log), default=0) - min((e["start_ns"] for e in log), default=0)
    kernels = sum(e["action"] == "execute" for e in log)
    moved = sum(e["details"]["nbytes"] for e in log if e["action"] == "transfer")
    problems, transfers = verified["problems"], verified["transfers"]
    state = f"{len(problems)} wrong" if problems else "all right"
    compared = f"{verified['kernels']:,} kernel{'s' * (verified['kernels'] != 1)}"
    checked = f"{compared} ({verified['elements']:,} elements) against NumPy, {transfers:,} transfers"
    cards = [
        ("", duration(total), "virtual time"),
        ("", f"{kernels:,}", "kernel" + "s" * (kernels != 1)),
        ("", f"{moved:,}", "bytes moved"),
        ("bad" if problems else "good", state, checked),
    ]
    return "".join(f'<div class="{kind}"><b>{value}</b><span>{what}</span></div>' for kind, value, what in cards)


def _ops(rows: Sequence[PredictedTime]) -> str:
    total = sum(r.nanoseconds for r in rows) or 1
    head = "".join(f'<th class="n">{t}</th>' for t in ("calls", "time", "per call", "share", "GFLOP/s", "GB/s"))
    lines = [
        f'<tr><td>{html.escape(r.name)}</td><td class="n">{r.calls}</td><td class="n">{duration(r.nanoseconds)}</td>'
        f'<td class="n">{duration(r.nanoseconds / r.calls)}</td><td class="n">{r.nanoseconds / total:.1%}</td>'
        f'<td class="n">{r.flops / r.nanoseconds:,.1f}</td><td class="n">{r.nbytes / r.nanoseconds:,.1f}</td>'
        f'<td class="bar"><i style="width:{100 * r.nanoseconds / total:.1f}%"></i></td></tr>'
        for r in rows
    ]
    return f"<table><tr><th>op</th>{head}<th></th></tr>{''.join(lines)}</table>"


def _steps(rows: Sequence[PredictedStep]) -> str:
    longest = max((r.duration for r in rows), default=0) or 1
    head = "".join(f'<th class="n">{t}</th>' for t in ("ends at", "takes", "kernels", "compute", "transfers"))
    lines = [
        f'<tr><td>{i}</td><td class="n">{duration(r.end)}</td><td class="n">{duration(r.duration)}</td>'
        f'<td class="n">{r.kernels}</td><td class="n">{duration(r.compute)}</td><td class="n">{duration(r.transfers)}</td>'
        f'<td class="bar"><i style="width:{100 * r.duration / longest:.1f}%"></i></td></tr>'
        for i, r in enumerate(rows, 1)
    ]
    return f"<table><tr><th>step</th>{head}<th></th></tr>{''.join(lines)}</table>"
