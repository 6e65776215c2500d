"""Distances between rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, pulled_back

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@aten("_cdist_forward")
def cdist(x: Tensor, y: Tensor, p: float, mode: int | None) -> Any:
    return F["cdist"](x, y, p, _MODES[mode or 0])


@aten("_cdist_backward")
def cdist_backward(grad: Tensor, x: Tensor, y: Tensor, p: float, distances: Tensor) -> Any:
    """Return the gradient of the rows of `x`."""
    return pulled_back(lambda rows: F["cdist"](rows, y, p), grad, x)


@aten("_pdist_backward")
def pdist_backward(grad: Tensor, x: Tensor, p: float, distances: Tensor) -> Any:
    return pulled_back(lambda rows: F["pdist"](rows, p), grad, x)
