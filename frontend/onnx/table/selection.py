"""Results whose shapes depend on values, and orders of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import polyhal as ph
from polyhal.onnx.registration import Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.tensor import Tensor


@operator("TopK", host=("k",))
def top_k(x: Tensor, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:  # noqa: A002
    values, places = ph.topk(x, integers(k)[0], axis, bool(largest), bool(sorted))
    return values, places.to(ph.int64)


@operator("NonZero", host=("x",), elements=True)
def nonzero(x: np.ndarray) -> Any:
    return np.array(np.nonzero(x)).reshape(x.ndim, -1).astype(np.int64)


@operator("Compress", host=("condition",))
def compress(x: Tensor, condition: Value, *, axis: int | None = None) -> Any:
    x, axis = (ph.reshape(x, (-1,)), 0) if axis is None else (x, axis)
    kept = np.flatnonzero(np.asarray(condition)[: x.shape[axis]])
    return ph.index_select(x, axis, ph.tensor(kept, device=x.device))


@operator("Unique", host=("x",), elements=True)
def unique(x: np.ndarray, *, axis: int | None = None, sorted: int = 1) -> Any:  # noqa: A002
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        back = np.argsort(order)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], back[inverse]
    return values, first, inverse, counts


@operator("NonMaxSuppression", host=("boxes", "scores", "most", "overlap", "score"), elements=True)
def non_max_suppression(
    boxes: np.ndarray,
    scores: np.ndarray,
    most: Value = None,
    overlap: Value = None,
    score: Value = None,
    *,
    center_point_box: int = 0,
) -> Any:
    limit = 0 if most is None else integers(most)[0]
    ratio = 0.0 if overlap is None else float(np.asarray(overlap).reshape(-1)[0])
    lowest = -np.inf if score is None else float(np.asarray(score).reshape(-1)[0])
    if center_point_box:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        low, high = middle - half, middle + half
    else:
        low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
    areas = np.prod(high - low, axis=-1)
    found = []
    for batch, classes in enumerate(scores):
        for number, row in enumerate(classes):
            kept: list[int] = []
            for i in np.argsort(-row, kind="stable"):
                if len(kept) == limit or row[i] <= lowest:
                    break
                sides = np.minimum(high[batch, i], high[batch, kept]) - np.maximum(low[batch, i], low[batch, kept])
                common = np.prod(np.maximum(sides, 0), axis=-1)
                union = areas[batch, i] + areas[batch, kept] - common
                if not np.any(common > ratio * union):
                    kept.append(int(i))
            found += [(batch, number, i) for i in kept]
    return np.array(found, np.int64).reshape(-1, 3)
