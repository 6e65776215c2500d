"""Distances between rows."""

from __future__ import annotations

from typing import Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, pulled_back

_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@aten("_cdist_forward")
def cdist(x: Any, y: Any, p: float, mode: int | None) -> Any:
    return F["cdist"](x, y, p, _MODES[mode or 0])


@aten("_cdist_backward")
def cdist_backward(grad: Any, x: Any, y: Any, p: float, distances: Any) -> Any:
    """Return the gradient of the rows of `x`."""
    return pulled_back(lambda rows: F["cdist"](rows, y, p), grad, x)


@aten("_pdist_backward")
def pdist_backward(grad: Any, x: Any, p: float, distances: Any) -> Any:
    return pulled_back(lambda rows: F["pdist"](rows, p), grad, x)
