"""The layered layout of pictures of graphs."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from polyhal.hal.system.diagnostics.graph_layout import layered

SIDE = 40.0


def squares(count: int) -> dict[int, tuple[float, float]]:
    return dict.fromkeys(range(count), (SIDE, SIDE))


@pytest.mark.parametrize("seed", range(4))
def test_edges_of_random_graphs_pass_beside_boxes(seed: int) -> None:
    """A curve between two points stays in their rectangle, which must touch no box, and boxes must not overlap."""
    rng = random.Random(seed)
    count = 40
    sizes = {n: (rng.uniform(30, 150), rng.uniform(20, 80)) for n in range(count)}
    edges = sorted({(rng.randrange(b), b) for b in range(1, count) for _ in range(rng.randrange(4))})
    centres, routes = layered(sizes, edges)
    boxes = [(x - w / 2, y - h / 2, x + w / 2, y + h / 2) for n, (w, h) in sizes.items() for x, y in [centres[n]]]
    for (al, at, ar, ab), (bl, bt, br, bb) in combinations(boxes, 2):
        assert ar < bl or br < al or ab < bt or bb < at
    for (a, b), route in zip(edges, routes, strict=True):
        assert route[0] == pytest.approx((centres[a][0], boxes[a][3]), abs=0.001)
        assert route[-1] == pytest.approx((centres[b][0], boxes[b][1]), abs=0.001)
        for (px, py), (qx, qy) in pairwise(route):
            assert py < qy
            for left, top, right, bottom in boxes:
                beside = max(px, qx) <= left or right <= min(px, qx)
                assert beside or qy <= top + 0.001 or bottom <= py + 0.001  # points are rounded


def test_rows_are_reordered_where_edges_would_cross() -> None:
    centres, _ = layered(squares(6), [(0, 5), (1, 4), (2, 3)])
    places = [[centres[n][0] for n in pair] for pair in ((0, 5), (1, 4), (2, 3))]
    assert [a for a, _ in sorted(places)] == sorted(a for a, _ in places)
    assert [b for _, b in sorted(places)] == sorted(b for _, b in places)


def test_users_are_centred_below_their_operand() -> None:
    """Three equal boxes that want the same place keep their space around it: the least sum of squares."""
    centres, routes = layered(squares(4), [(0, 1), (0, 2), (0, 3)])
    left, middle, right = sorted(centres[n][0] for n in (1, 2, 3))
    assert middle == pytest.approx(centres[0][0])
    assert middle - left == pytest.approx(right - middle)
    assert {len(route) for route in routes} == {2}


def test_an_operand_without_operands_is_above_its_first_user() -> None:
    centres, _ = layered(squares(4), [(0, 1), (1, 3), (2, 3)])
    assert centres[2][1] == centres[1][1]


def test_nothing_is_placed_in_an_empty_graph() -> None:
    assert layered({}, []) == ({}, [])
