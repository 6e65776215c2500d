"""Spatial transformers: grids of positions from affine maps, and images sampled at positions."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor

_grid_sample = FUNCTIONS["grid_sample"]


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Return positions (N, H, W, 2) of the pixels of images of `size` (N, C, H, W) after the maps `theta` (N, 2, 3).

    For volumes (N, C, D, H, W): positions (N, D, H, W, 3), maps (N, 3, 4). For `grid_sample`, which takes the same
    `align_corners`. Source: arXiv:1506.02025. Raises ShapeError.
    """
    size = tuple(size)
    axes = len(size) - 2
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1) or min(size) < 1:
        raise ShapeError(
            message("affine_grid", f"maps {theta.shape} for size {size}", expected="(N, 2, 3) for (N, C, H, W)")
        )
    dtype = theta.dtype if theta.dtype.itemsize >= 4 else dtypes.float32
    lengths = size[2:]
    columns = []
    for i, n in reversed(list(enumerate(lengths))):
        turn = ops.arange(0, n, 1, dtype, device=theta.device)
        step = 2.0 / max(n - 1, 1) if align_corners else 2.0 / n
        line = (turn - (n - 1) / 2) * step
        columns.append(ops.broadcast_to(line.reshape((n, *[1] * (axes - 1 - i))), lengths))
    columns.append(ops.full(lengths, 1.0, dtype, device=theta.device))
    base = ops.stack(columns, -1).reshape((1, -1, axes + 1)).cast(dtype=theta.dtype)
    return ops.matmul(base, ops.transpose(theta, 1, 2)).reshape((size[0], *lengths, axes))


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """`input` (N, C, H, W) at positions `grid` (N, H', W', 2): (N, C, H', W'); for volumes with an axis more each.

    A position is (x, y) with -1 and 1 at the ends of an axis: the centers of the outer elements with `align_corners`,
    else their edges. `mode` is "bilinear", "nearest" or, for images, "bicubic"; outside are "zeros", the nearest element
    ("border") or the mirrored image ("reflection"). Floats only. Raises ShapeError and UnsupportedDTypeError.
    """
    out: Tensor = _grid_sample(input, grid, mode, padding_mode, bool(align_corners))
    return out
