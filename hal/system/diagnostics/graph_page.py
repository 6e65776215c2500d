"""Graphs as a self-contained HTML page: the ops in execution order, folded by module."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from importlib import resources

from polyhal.hal.system.diagnostics.graph_picture import INPUT, Box


def write(boxes: Sequence[Box], title: str) -> str:
    """Return the page. Bars show time and memory; a click on a row shows its operands and its users."""
    details = [
        {
            "number": b.number,
            "text": b.text,
            "kernel": b.kernel,
            "us": None if b.nanoseconds is None else b.nanoseconds / 1e3,
            "bytes": b.nbytes,
            "reads": b.reads,
            "notes": b.notes,
        }
        for b in boxes
    ]
    template = resources.files(__package__).joinpath("graph_page.html").read_text(encoding="utf-8")
    # "</script>" in a name must not end the data.
    data = json.dumps(details).replace("<", "\\u003c")
    families = dict.fromkeys((b.family, b.colour) for b in boxes)
    parts = {
        "TITLE": html.escape(title),
        "LEGEND": "".join(f'<span style="background:{c}">{html.escape(f)}</span>' for f, c in families),
        "INPUTS": "\n".join(_row(b, boxes) for b in boxes if b.family == INPUT),
        "NODES": "\n".join(_groups([b for b in boxes if b.family != INPUT], boxes, 0)),
        "DATA": data,
    }
    for name, text in parts.items():
        template = template.replace(f"<!--{name}-->", text)
    return template


def _groups(rows: Sequence[Box], boxes: Sequence[Box], depth: int) -> Iterator[str]:
    """Yield the rows in order, with consecutive ops of one module in one fold."""
    start = 0
    while start < len(rows):
        part = _part(rows[start], depth)
        end = start + 1
        while end < len(rows) and _part(rows[end], depth) == part:
            end += 1
        run = rows[start:end]
        if part is None:
            yield from (_row(b, boxes) for b in run)
        else:
            time = sum(b.nanoseconds or 0 for b in run)
            total = f", {time / 1e3:.1f} us" if time else ""
            yield f"<details open><summary>{html.escape(part)} <small>{len(run)} ops{total}</small></summary>"
            yield from _groups(run, boxes, depth + 1)
            yield "</details>"
        start = end


def _part(box: Box, depth: int) -> str | None:
    """Return the module at one depth of a box's module path; None below its end."""
    parts = box.module.split(".") if box.module else []
    return parts[depth] if depth < len(parts) else None


def _row(box: Box, boxes: Sequence[Box]) -> str:
    longest = max((b.nanoseconds or 0 for b in boxes), default=0) or 1
    largest = max((b.nbytes for b in boxes), default=0) or 1
    time = "" if box.nanoseconds is None else f"{box.nanoseconds / 1e3:.1f} us"
    bars = f"--time:{100 * (box.nanoseconds or 0) / longest:.1f}%;--size:{100 * box.nbytes / largest:.1f}%"
    tip = "\n".join([box.text, *([box.kernel] if box.kernel else []), *box.notes])
    view = " view" if not box.nbytes and box.family != INPUT else ""
    return (
        f'<div class="row{view}" id="b{box.number}" tabindex="0" style="{bars}" title="{html.escape(tip, quote=True)}">'
        f'<b style="background:{box.colour}">{html.escape(box.title)}</b><span class="specs">{html.escape(box.specs)}</span>'
        f'<span class="size">{_size(box.nbytes)}</span><span class="time">{time}</span></div>'
    )


def _size(nbytes: int) -> str:
    if not nbytes:
        return ""
    for unit, scale in (("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} B"
