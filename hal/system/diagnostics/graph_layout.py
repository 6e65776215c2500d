"""Layered layout of a graph: boxes in rows from operands to results, few crossings, and edges that pass between boxes.

The steps of K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of hierarchical system structures", 1981:
longest paths choose rows, means of neighbours order each row, and centres follow neighbours as far as the order permits.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from itertools import pairwise

Point = tuple[float, float]
Item = tuple[int, int]
"""A number and a row: the box itself on its own row, a bend of its edges on rows below."""
Neighbours = dict[Item, list[Item]]

_SPACE, _ROW_SPACE = 14, 28
"""Pixels between neighbours on a row, and between rows."""
_ORDERINGS, _SHIFTS = 4, 4
"""Number of sweeps, downwards and upwards in turn, that reduce crossings and that move centres."""
_STRAIGHT = 4
"""Weight of a bend's place against a box's: long edges are straight."""


def layered(
    sizes: Mapping[int, tuple[float, float]], edges: Sequence[tuple[int, int]]
) -> tuple[dict[int, Point], list[list[Point]]]:
    """Return the centre of each box, and the points of each edge, at each of which it is vertical.

    `sizes` has widths and heights in pixels by number. An edge's first number is smaller than its second.
    """
    row_of = _rows_of(sizes, edges)
    above: Neighbours = {(n, row_of[n]): [] for n in sizes}
    for a, b in edges:
        above.update({(a, k): [(a, k - 1)] for k in range(row_of[a] + 1, row_of[b])})
        above[b, row_of[b]].append((a, row_of[b] - 1))
    below: Neighbours = {item: [] for item in above}
    rows: list[list[Item]] = [[] for _ in range(max(row_of.values(), default=-1) + 1)]
    for item, others in above.items():
        rows[item[1]].append(item)
        for other in others:
            below[other].append(item)
    rows = _ordered(rows, above, below)
    width = {item: sizes[item[0]][0] if row_of[item[0]] == item[1] else 0.0 for item in above}
    across = _centres(rows, above, below, width)
    spans, top = [], 0.0
    for k, row in enumerate(rows):
        bottom = top + max(sizes[n][1] for n, _ in row if row_of[n] == k)
        spans.append((top, bottom))
        top = bottom + _ROW_SPACE
    centres = {n: (across[n, k], sum(spans[k]) / 2) for n, k in row_of.items()}
    routes = []
    for a, b in edges:
        (ax, ay), (bx, by) = centres[a], centres[b]
        bends = [(across[a, k], y) for k in range(row_of[a] + 1, row_of[b]) for y in spans[k]]
        start, end = (ax, ay + sizes[a][1] / 2), (bx, by - sizes[b][1] / 2)
        points = [start, (ax, spans[row_of[a]][1]), *bends, (bx, spans[row_of[b]][0]), end]
        routes.append(list(dict.fromkeys((x, round(y, 3)) for x, y in points)))  # a box may be as high as its row
    return centres, routes


def _rows_of(numbers: Mapping[int, object], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return each box's row: below all operands, and directly above the first user if it has none."""
    found = dict.fromkeys(numbers, 0)
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        found[b] = max(found[b], found[a] + 1)
    first_user: dict[int, int] = {}
    for a, b in edges:
        first_user[a] = min(first_user.get(a, found[b]), found[b])
    users = {b for _, b in edges}
    return {n: row if n in users or n not in first_user else first_user[n] - 1 for n, row in found.items()}


def _ordered(rows: list[list[Item]], above: Neighbours, below: Neighbours) -> list[list[Item]]:
    """Return the rows in the order with the fewest crossings of all sweeps."""
    place = {item: float(i) for row in rows for i, item in enumerate(row)}
    best, fewest = rows, _crossings(rows, above)
    for sweep in range(_ORDERINGS):
        others, step = (below, -1) if sweep % 2 else (above, 1)
        rows = list(rows)
        for k in range(len(rows))[::step]:
            wanted = {item: _mean(place, others[item] or [item]) for item in rows[k]}
            rows[k] = sorted(rows[k], key=wanted.__getitem__)
            place.update({item: float(i) for i, item in enumerate(rows[k])})
        crossings = _crossings(rows, above)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _mean(values: Mapping[Item, float], items: Sequence[Item]) -> float:
    return sum(values[item] for item in items) / len(items) if len(items) > 1 else values[items[0]]


def _crossings(rows: Sequence[Sequence[Item]], above: Neighbours) -> int:
    """Return how many pairs of edges between neighbouring rows cross."""
    count = 0
    for upper, lower in pairwise(rows):
        place = {item: i for i, item in enumerate(upper)}
        ends: list[int] = []
        for item in lower:
            mine = [place[other] for other in above[item]]
            count += sum(len(ends) - bisect_right(ends, end) for end in mine)
            for end in mine:
                insort(ends, end)
    return count


def _centres(
    rows: Sequence[Sequence[Item]], above: Neighbours, below: Neighbours, width: Mapping[Item, float]
) -> dict[Item, float]:
    """Return the horizontal centre of each item."""
    x: dict[Item, float] = {}
    for row in rows:
        x.update(_apart(row, [0.0] * len(row), width, dict.fromkeys(row, 1)))
    weight = {item: 1 if w else _STRAIGHT for item, w in width.items()}
    for sweep in range(_SHIFTS):
        others, step = (below, -1) if sweep % 2 else (above, 1)
        for row in rows[::step]:
            wanted = [_mean(x, others[item] or [item]) for item in row]
            x.update(_apart(row, wanted, width, weight))
    return x


def _apart(
    row: Sequence[Item], wanted: Sequence[float], width: Mapping[Item, float], weight: Mapping[Item, int]
) -> dict[Item, float]:
    """Return the centres with the least weighted squares of distances to the wanted ones that keep order and space.

    Isotonic regression of the centres less the offsets of a packed row: neighbours in the wrong order are pooled.
    """
    offsets = [0.0]
    for a, b in pairwise(row):
        offsets.append(offsets[-1] + (width[a] + width[b]) / 2 + _SPACE)
    pools: list[tuple[float, int, int]] = []  # mean, weight, number of items
    for item, centre, offset in zip(row, wanted, offsets, strict=True):
        mean, total, count = centre - offset, weight[item], 1
        while pools and pools[-1][0] > mean:
            m, t, c = pools.pop()
            mean, total, count = (m * t + mean * total) / (t + total), t + total, c + count
        pools.append((mean, total, count))
    means = [mean for mean, _, count in pools for _ in range(count)]
    return {item: mean + offset for item, mean, offset in zip(row, means, offsets, strict=True)}
