"""Graphs as SVG images: ops in rows from operands to results, with routed edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain, pairwise

from polyhal.hal.system.diagnostics.graph_layout import Point, layered
from polyhal.hal.system.diagnostics.graph_picture import INPUT, Box

_CHARACTER = 6.2
"""Width of a character at the font's size, in pixels."""
_LINE = 14
_MARGIN = 20
_LONGEST = 48
"""Maximum characters of a line; the tooltip has the whole text."""
_PARAMETERS = 4
"""Maximum number of named inputs that a box lists."""
_ARROW = """<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 L8 4 L0 8 z" fill="#777"/></marker></defs>"""


def write(boxes: Sequence[Box]) -> str:
    """Return the image. Named inputs, such as parameters, are lines of the ops that read them, and others are boxes."""
    named = {b.number for b in boxes if b.family == INPUT and not b.title.startswith("%")}
    used = {i for b in boxes for i in b.reads}
    drawn = [b for b in boxes if b.number not in named and (b.family != INPUT or b.number in used)]
    labels = {b.number: _label(b, boxes, named) for b in drawn}
    sizes = {n: (max(map(len, lines)) * _CHARACTER + 16, len(lines) * _LINE + 8) for n, lines in labels.items()}
    edges = list(dict.fromkeys((source, b.number) for b in drawn for source in b.reads if source in labels))
    centres, routes = layered(sizes, edges)
    corners = {n: (x - sizes[n][0] / 2, y - sizes[n][1] / 2) for n, (x, y) in centres.items()}
    opposite = [(x + sizes[n][0], y + sizes[n][1]) for n, (x, y) in corners.items()]
    across, down = zip(*corners.values(), *opposite, *chain.from_iterable(routes), strict=True) if drawn else ([0], [0])
    left, top = min(across) - _MARGIN, min(down) - _MARGIN
    width, height = max(across) + _MARGIN - left, max(down) + _MARGIN - top
    view_box = f"{left:.0f} {top:.0f} {width:.0f} {height:.0f}"
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view_box}" {size} font-family="sans-serif" font-size="11">',
        _ARROW,
        f'<rect x="{left:.0f}" y="{top:.0f}" {size} fill="white"/>',
        *(_edge(points) for points in routes),
        *(line for b in drawn for line in _box(b, labels[b.number], corners[b.number], sizes[b.number])),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _label(box: Box, boxes: Sequence[Box], named: set[int]) -> list[str]:
    """Return the lines of a box."""
    parameters = [boxes[i].title for i in box.reads if i in named]
    if len(parameters) > _PARAMETERS:
        parameters[_PARAMETERS:] = [f"and {len(parameters) - _PARAMETERS} more"]
    time = [] if box.nanoseconds is None else [f"{box.nanoseconds / 1e3:.1f} us"]
    module = [f"module {box.module}"] if box.module else []
    lines = [box.title, box.specs, *module, *parameters, *time]
    return [line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…" for line in lines if line]


def _edge(points: Sequence[Point]) -> str:
    """Return a curve through the points, vertical at each."""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (ax, ay), (bx, by) in pairwise(points):
        half = (ay + by) / 2
        path += f" C{ax:.1f} {half:.1f} {bx:.1f} {half:.1f} {bx:.1f} {by:.1f}"
    return f'<path d="{path}" fill="none" stroke="#777" marker-end="url(#arrow)"/>'


def _box(box: Box, lines: Sequence[str], corner: Point, size: tuple[float, float]) -> Iterator[str]:
    (x, y), (w, h) = corner, size
    tip = "\n".join([box.text, *([box.kernel] if box.kernel else []), *box.notes])
    yield f'<g id="b{box.number}"><title>{escape(tip)}</title>'
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h}" rx="4" fill="{box.colour}" stroke="#777"/>'
    for k, line in enumerate(lines):
        weight = ' font-weight="bold"' if not k else ""
        at = y + _LINE * (k + 1)
        yield f'<text x="{x + w / 2:.1f}" y="{at:.1f}" text-anchor="middle"{weight}>{escape(line)}</text>'
    yield "</g>"
