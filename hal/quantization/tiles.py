"""The order of bytes in which kernels read quantised weights: tiles of 16 rows.

In a file each row is a sequence of blocks. In a tile, the blocks that 16 rows have at one position are interleaved: of each
field the first 4 bytes of every row, then the next 4 of every row, and so on (fields of 1 or 2 bytes whole). A vector of 16
lanes thus holds one word of each of 16 rows, and every field begins at a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from polyhal.hal.quantization.block_format import BlockFormat

TILE = 16
"""Rows of a tile."""
_WORD = 4


def units(form: BlockFormat) -> Iterator[tuple[int, int, int]]:
    """First byte in the block, number of units and bytes of a unit, for each field of a block."""
    first = 0
    for _, size in form.fields:
        unit = min(size, _WORD)
        yield first, size // unit, unit
        first += size


def tiled(blocks: np.ndarray, form: BlockFormat) -> np.ndarray:
    """Rows of bytes (N, row bytes) in tiles, of the same shape. Raises ValueError unless N is a multiple of 16."""
    rows, size = blocks.shape
    if rows % TILE:
        raise ValueError(f"{rows} rows of blocks; expected a multiple of {TILE}")
    count = size // form.block_bytes
    source = blocks.reshape(rows // TILE, TILE, count, form.block_bytes)
    parts = [
        source[..., first : first + n * unit]
        .reshape(rows // TILE, TILE, count, n, unit)
        .transpose(0, 2, 3, 1, 4)
        .reshape(rows // TILE, count, TILE * n * unit)
        for first, n, unit in units(form)
    ]
    return np.concatenate(parts, -1).reshape(rows, size)


def from_tiles(
    blocks: Any, form: BlockFormat, reshape: Callable[..., Any], permute: Callable[..., Any], join: Callable[..., Any]
) -> Any:
    """The inverse of `tiled`, by functions of arrays or of tensors: reshape(x, shape), permute(x, axes), join(parts, axis)."""
    rows, size = blocks.shape
    count = size // form.block_bytes
    source = reshape(blocks, (rows // TILE, count, TILE * form.block_bytes))
    parts = []
    for first, n, unit in units(form):
        part = source[..., TILE * first : TILE * (first + n * unit)]
        part = permute(reshape(part, (rows // TILE, count, n, TILE, unit)), (0, 3, 1, 2, 4))
        parts.append(reshape(part, (rows // TILE, TILE, count, n * unit)))
    return reshape(join(parts, -1), (rows, size))
