"""Ops that move or select elements or add them up, equally for both parts."""

from __future__ import annotations

from typing import Any

from polyhal.hal.ops.complex_numbers.rules import by_parts, complex_rule, imag, join, real
from polyhal.hal.ops.indexing.add_rows import add_rows
from polyhal.hal.ops.indexing.along_axis import scatter_along_axis
from polyhal.hal.ops.indexing.along_axis import take_along_axis as op_take_along_axis
from polyhal.hal.ops.indexing.row_updates import replace_rows, write_rows
from polyhal.hal.ops.indexing.rows import embedding, scatter_rows
from polyhal.hal.ops.layout.diagonal import diagonal_view, embed_diagonal
from polyhal.hal.ops.layout.regions import concat, copy, pad
from polyhal.hal.ops.layout.slicing import slice_, unslice
from polyhal.hal.ops.layout.sliding_windows import fold_windows, windows
from polyhal.hal.ops.layout.triangle import tril, triu
from polyhal.hal.ops.layout.views import broadcast_to, contiguous, permute, reshape
from polyhal.hal.ops.layout.window import overwrite, window
from polyhal.hal.ops.reductions.scan import cumsum
from polyhal.hal.ops.reductions.sums import mean, sum_
from polyhal.hal.ops.tensor_like import TensorLike

by_parts(broadcast_to, contiguous, copy, diagonal_view, permute, reshape, slice_, window, windows)
by_parts(concat, embed_diagonal, fold_windows, overwrite, tril, triu, unslice)
by_parts(
    add_rows, embedding, op_take_along_axis, replace_rows, scatter_along_axis, scatter_rows, write_rows, but=("index",)
)
by_parts(cumsum, mean, sum_)


@complex_rule(pad)
def _pad(x: TensorLike, *, widths: Any, value: int) -> Any:
    return join(pad(real(x), widths, real(value)), pad(imag(x), widths, imag(value)))
