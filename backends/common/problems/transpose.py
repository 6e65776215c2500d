"""Copies that are (batched) matrix transpositions, for tiled kernels."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.hal.layout import Spec, collapse

_SHORTEST_SIDE = 8
"""Minimum side for which tiling is faster."""


@dataclass(frozen=True, slots=True)
class Transposition:
    """`target[b0, b1, row, column] = source[b0, b1, row, column]`, with strides in elements.

    In the source, rows have stride 1 and columns `source_step`; in the target, columns have stride 1 and rows
    `target_step`.
    """

    rows: int
    columns: int
    source_step: int
    target_step: int
    batch: tuple[int, int]
    source_batch: tuple[int, int]
    target_batch: tuple[int, int]

    def tiles(self, size: int) -> int:
        """Return the number of square tiles of side `size` that cover all batches."""
        return ceil_div(self.rows, size) * ceil_div(self.columns, size) * self.batch[0] * self.batch[1]

    def vectorizable(self, width: int) -> bool:
        """Return whether vectors of `width` elements are aligned on both sides, given aligned memory."""
        steps = (self.rows, self.columns, self.source_step, self.target_step, *self.source_batch, *self.target_batch)
        return all(step % width == 0 for step in steps)


def match(source: Spec, target: Spec) -> Transposition | None:
    """Return the copy between two specs of one dtype as a transposition, or None if it is not one or too small."""
    if source.dtype is not target.dtype:
        return None
    order = sorted(range(target.ndim), key=lambda axis: -abs(target.strides[axis]))
    axes, (x, out) = collapse(
        tuple(target.shape[a] for a in order),
        (tuple(source.strides[a] for a in order), tuple(target.strides[a] for a in order)),
    )
    if not 2 <= len(axes) <= 4 or out[-1] != 1 or x[-1] in (0, 1) or 1 not in x:
        return None
    row = x.index(1)
    if min(axes[row], axes[-1]) < _SHORTEST_SIDE:
        return None
    batch = [(1, 0, 0)] * 2 + [(axes[a], x[a], out[a]) for a in range(len(axes) - 1) if a != row]
    (b0, x0, out0), (b1, x1, out1) = batch[-2:]
    return Transposition(axes[row], axes[-1], x[-1], out[row], (b0, b1), (x0, x1), (out0, out1))
