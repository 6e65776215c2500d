"""Graphs as SVG images: ops in layers from operands to results, with routed edges.

grandalf computes the layout: layers, few crossings, and bends at the layers that an edge passes (K. Sugiyama, S. Tagawa and
M. Toda, "Methods for visual understanding of hierarchical system structures", 1981). It is pure Python with one small
dependency; NetworkX has no layered layout, igraph's is a C library, and Graphviz is a program of the system, for which
`graph_dot` writes files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from polyhal.hal.errors import MissingPackageError, message
from polyhal.hal.system.diagnostics.graph_picture import INPUT, Box

_CHARACTER = 6.2
"""Width of a character at the font's size, in pixels."""
_LINE = 14
_MARGIN = 20
_PASSES = 3
"""Number of sweeps that reduce crossings."""
_LONGEST = 48
"""Maximum characters of a line; the tooltip has the whole text."""
_PARAMETERS = 4
"""Maximum number of named inputs that a box lists."""
_ARROW = """<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 L8 4 L0 8 z" fill="#777"/></marker></defs>"""


class BoxView:
    """Size and centre of a box or of a bend, which the layout sets."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.w = max(map(len, lines), default=0) * _CHARACTER + 16
        self.h = len(lines) * _LINE + 8
        self.xy = (0.0, 0.0)


def write(boxes: Sequence[Box]) -> str:
    """Return the image. Named inputs, such as parameters, are lines of the ops that read them, and others are boxes.

    Raises MissingPackageError without grandalf.
    """
    named = {b.number for b in boxes if b.family == INPUT and not b.title.startswith("%")}
    used = {i for b in boxes for i in b.reads}
    drawn = [b for b in boxes if b.number not in named and (b.family != INPUT or b.number in used)]
    views = {b.number: BoxView(_label(b, boxes, named)) for b in drawn}
    edges = [(source, b.number) for b in drawn for source in b.reads if source in views]
    routes = _placed(views, edges)
    left = min((v.xy[0] - v.w / 2 for v in views.values()), default=0) - _MARGIN
    top = min((v.xy[1] - v.h / 2 for v in views.values()), default=0) - _MARGIN
    width = max((v.xy[0] + v.w / 2 for v in views.values()), default=0) + _MARGIN - left
    height = max((v.xy[1] + v.h / 2 for v in views.values()), default=0) + _MARGIN - top
    view_box = f"{left:.0f} {top:.0f} {width:.0f} {height:.0f}"
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view_box}" {size} font-family="sans-serif" font-size="11">',
        _ARROW,
        f'<rect x="{left:.0f}" y="{top:.0f}" {size} fill="white"/>',
        *(_edge(points) for points in routes),
        *(line for b in drawn for line in _box(b, views[b.number])),
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


def _placed(views: dict[int, BoxView], edges: Sequence[tuple[int, int]]) -> list[list[tuple[float, float]]]:
    """Set the centres of all boxes, and return the points of each edge."""
    try:
        from grandalf.graphs import Edge, Graph, Vertex
        from grandalf.layouts import SugiyamaLayout
    except ImportError as error:
        fix = 'run pip install "polyhal[draw]", or write .html or .dot'
        raise MissingPackageError(message("draw_graph", "SVG images need the package grandalf", fix=fix)) from error
    vertices = {number: Vertex(number) for number in views}
    for number, vertex in vertices.items():
        vertex.view = views[number]
    graph: Any = Graph(list(vertices.values()), [Edge(vertices[a], vertices[b]) for a, b in edges])
    routes: list[list[tuple[float, float]]] = []
    right = 0.0
    for component in graph.C:
        layout = SugiyamaLayout(component)
        layout.xspace, layout.yspace = 16, 28
        layout.init_all(roots=[v for v in component.sV if not v.e_in()], optimize=False)
        layout.draw(_PASSES)
        members = [v.view for v in component.sV]
        shift = right - min(v.xy[0] - v.w / 2 for v in members)
        bends = _bends(layout, component)
        for view in members:
            view.xy = (view.xy[0] + shift, view.xy[1])
        routes += [_route(a, b, [(x + shift, y) for x, y in middle]) for a, b, middle in bends]
        right = max(v.xy[0] + v.w / 2 for v in members) + 2 * _MARGIN
    return routes


def _bends(layout: Any, component: Any) -> list[tuple[BoxView, BoxView, list[tuple[float, float]]]]:
    """Return the ends of each edge, and its points on the layers between them."""
    found = []
    for edge in component.sE:
        ranks = layout.ctrls.get(edge, {}) if hasattr(layout.ctrls, "get") else {}
        middle = [ranks[r].view.xy for r in sorted(ranks) if ranks[r] not in edge.v]
        first, last = (v.view for v in edge.v)
        found.append((first, last, middle if first.xy[1] <= last.xy[1] else middle[::-1]))
    return found


def _route(first: BoxView, last: BoxView, middle: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points of an edge, from the lower side of a box to the upper side of the next."""
    (ax, ay), (bx, by) = first.xy, last.xy
    return [(ax, ay + first.h / 2), *middle, (bx, by - last.h / 2)]


def _edge(points: Sequence[tuple[float, float]]) -> str:
    """Return a curve through the points, vertical at each."""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (ax, ay), (bx, by) in pairwise(points):
        half = (ay + by) / 2
        path += f" C{ax:.1f} {half:.1f} {bx:.1f} {half:.1f} {bx:.1f} {by:.1f}"
    return f'<path d="{path}" fill="none" stroke="#777" marker-end="url(#arrow)"/>'


def _box(box: Box, view: BoxView) -> Iterator[str]:
    x, y = view.xy[0] - view.w / 2, view.xy[1] - view.h / 2
    tip = "\n".join([box.text, *([box.kernel] if box.kernel else []), *box.notes])
    yield f'<g id="b{box.number}"><title>{escape(tip)}</title>'
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{view.w:.1f}" height="{view.h}" rx="4" fill="{box.colour}" stroke="#777"/>'
    for k, line in enumerate(view.lines):
        weight = ' font-weight="bold"' if not k else ""
        at = y + _LINE * (k + 1)
        yield f'<text x="{view.xy[0]:.1f}" y="{at:.1f}" text-anchor="middle"{weight}>{escape(line)}</text>'
    yield "</g>"
