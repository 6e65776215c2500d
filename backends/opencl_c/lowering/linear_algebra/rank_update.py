"""Products that update the columns to the right of a panel of a large matrix, in place."""

from __future__ import annotations

from typing import NamedTuple

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Launch

_TILE, _GROUP = 64, 256


class Part(NamedTuple):
    """The first element of a part of a matrix, in elements from the matrix's, and strides between rows and columns."""

    at: int
    row: int
    column: int


def update_bytes(depth: int, dtype: DType) -> int:
    """Return the local memory of a group."""
    return 2 * depth * (_TILE + 4) * dtype.itemsize


def rank_update(
    runtime: Runtime,
    out: Tensor,
    dtype: DType,
    count: int,
    matrix: int,
    parts: tuple[Part, Part, Part],
    shape: tuple[int, int],
    depth: int,
    *,
    lower: bool = False,
) -> Launch:
    """Return the launch of `c -= a @ b` for parts of each of `count` matrices of `matrix` elements; c has `shape`."""
    a, b, _ = parts
    rows, columns = shape
    tile_columns = ceil_div(columns, _TILE)
    tiles = ceil_div(rows, _TILE) * tile_columns
    return runtime.launch(
        "linear_algebra/rank_update",
        {
            "DTYPE": dtype.name,
            "GROUP": _GROUP,
            "DEPTH": depth,
            "LOWER": lower,
            "A_ALONG_DEPTH": a.column == 1,
            "B_ALONG_DEPTH": b.row == 1,
        },
        {
            "out": out,
            "matrix": matrix,
            **{
                f"{name}_{field}": value
                for name, part in zip("abc", parts, strict=True)
                for field, value in part._asdict().items()
            },
            "rows": rows,
            "columns": columns,
            "tiles": tiles,
            "tile_columns": tile_columns,
        },
        (count * tiles * _GROUP,),
        (_GROUP,),
    )
