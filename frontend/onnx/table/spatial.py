"""Images sampled at positions and in regions."""

from __future__ import annotations

from typing import Any

import polyhal as ph
from polyhal.nn import functional
from polyhal.onnx.registration import Value, operator
from polyhal.onnx.table.shapes import integers
from polyhal.tensor import Tensor

_MODES = {"linear": "bilinear", "bilinear": "bilinear", "cubic": "bicubic", "bicubic": "bicubic", "nearest": "nearest"}


@operator("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    return functional.grid_sample(x, grid, _MODES[mode], padding_mode, bool(align_corners))


@operator("AffineGrid", host=("size",))
def affine_grid(theta: Tensor, size: Value, *, align_corners: int = 0) -> Any:
    return functional.affine_grid(theta, integers(size), bool(align_corners))


@operator("RoiAlign", since=16)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batches: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Any:
    if not sampling_ratio:
        raise ValueError("a sampling ratio that depends on the regions (0) is not supported")
    shift = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    box = rois * spatial_scale - shift
    begins, sizes = (box[:, 1], box[:, 0]), (box[:, 3] - box[:, 1], box[:, 2] - box[:, 0])
    if not shift:
        sizes = ph.maximum(sizes[0], 1.0), ph.maximum(sizes[1], 1.0)
    counts, images = (output_height, output_width), ph.index_select(x, 0, batches)
    corners = []
    for begin, size, count, n in zip(begins, sizes, counts, x.shape[2:], strict=True):
        samples = count * sampling_ratio
        steps = (ph.arange(0, samples, device=x.device).to(x.dtype) + 0.5) / sampling_ratio
        at = ph.reshape(begin, (-1, 1)) + steps * ph.reshape(size / count, (-1, 1))
        inside = ph.logical_and(at >= -1.0, at <= float(n))
        at = ph.clip(at, 0.0, float(n - 1))
        low = ph.floor(at)
        corners.append((low, at - low, inside, n))
    (y, fy, in_y, height), (column, fx, in_x, width) = corners
    flat = ph.reshape(images, (*images.shape[:2], height * width))
    parts = []
    for dy in (0, 1):
        for dx in (0, 1):
            rows = ph.clip(y + dy, 0.0, float(height - 1)).to(ph.int64)
            columns = ph.clip(column + dx, 0.0, float(width - 1)).to(ph.int64)
            places = ph.reshape(
                ph.unsqueeze(rows, 2) * width + ph.unsqueeze(columns, 1), (x_count := rows.shape[0], 1, -1)
            )
            values = ph.gather(flat, 2, ph.broadcast_to(places, (x_count, flat.shape[1], places.shape[2])))
            weight = ph.unsqueeze(fy if dy else 1 - fy, 2) * ph.unsqueeze(fx if dx else 1 - fx, 1)
            weight = ph.where(ph.logical_and(ph.unsqueeze(in_y, 2), ph.unsqueeze(in_x, 1)), weight, 0.0)
            parts.append(values * ph.reshape(weight, (x_count, 1, -1)))
    shape = (x.shape[1], output_height, sampling_ratio, output_width, sampling_ratio)
    if mode == "avg":
        return ph.mean(ph.reshape(parts[0] + parts[1] + parts[2] + parts[3], (-1, *shape)), (3, 5))
    best = ph.maximum(ph.maximum(parts[0], parts[1]), ph.maximum(parts[2], parts[3]))
    return ph.amax(ph.reshape(best, (-1, *shape)), (3, 5))
