"""Moments of columns that products of tensor cores store with their results (lib/column_moments.h)."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Argument, Workspace
from polyhal.hal import dtypes

ROWS = 64
"""Rows of a block."""
VECTOR = 8
"""Columns that divide the length of a row."""


def column_moments(rows: int, columns: int, place: int) -> tuple[dict[str, Argument], tuple[int, ...]]:
    """Return the arguments of a kernel that stores moments to workspace `place`, and the bytes of that workspace."""
    blocks = rows // ROWS
    return {"moments": Workspace(place), "moment_blocks": blocks}, (2 * blocks * columns * dtypes.float32.itemsize,)
