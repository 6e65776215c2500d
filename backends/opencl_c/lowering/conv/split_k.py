"""The launch that adds up the partial results of a split-K convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution, Correlation
from polyhal.backends.opencl_c.lowering.conv.arguments import Args, OutputIndex
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Launch

_GROUP = 64
"""Work-items of a group; equals ITEMS of conv/split_k_reduce.cl."""
_COLUMNS = 4
"""Columns per work-item for at least `_MANY` results. The number of columns need not be a multiple."""
_REDUCE_GROUP = 256
"""Work-items of a group; equals ITEMS of conv/wgmma_split_k_reduce.cl."""
_MANY = 1 << 19
"""Minimum results for which work-items with several of them fill a GPU."""
_UNROLLED_SPLITS = 16
"""Maximum splits of a weight gradient whose partial sums are read at once."""


@dataclass(frozen=True, slots=True)
class Partials:
    """Partial results of shape (splits, groups, rows, columns) in workspace `index`.

    They are float64 if the results are, and float32 otherwise.
    """

    index: int
    splits: int
    groups: int
    rows: int
    columns: int
    dtype: DType
    """Dtype of the operands, and of a bias."""
    out: DType
    """Dtype of the results."""

    @property
    def nbytes(self) -> int:
        return self.splits * self.groups * self.rows * self.columns * (8 if real_type(self.out) == "double" else 4)


def add_up(runtime: Runtime, out: Spec, parts: int, workspace: int, target: int) -> Launch:
    """Return a launch that adds up `parts` contiguous tensors like `out` in a workspace (see `common.problems.conv_pieces`)."""
    partials = Partials(workspace, parts, 1, 1, out.size, out.dtype, out.dtype)
    return reduction(runtime, partials, None, target, flat_index(out.size))


def flat_index(size: int) -> OutputIndex:
    """Return the output index of `size` contiguous results."""
    return OutputIndex((size, 0, size, 0, 1), (1, size), 1, (1, 1), (1, size))


def reduction(runtime: Runtime, p: Partials, bias: int | None, target: int, output: OutputIndex) -> Launch:
    """Return a launch that adds up partial results and the bias; `bias` and `target` are argument indices."""
    size = p.groups * p.rows * p.columns
    columns = _COLUMNS if size >= _MANY else 1
    args: Args = {
        "partial": Workspace(p.index),
        "out": Tensor(target),
        "size": size,
        "rows": p.rows,
        "columns": p.columns,
        "splits": p.splits,
        **output.args(),
    }
    if bias is not None:
        args["bias"] = Tensor(bias)
    return runtime.launch(
        "conv/split_k_reduce",
        {
            "DTYPE": p.dtype.name,
            "OUT_DTYPE": p.out.name,
            "REAL": real_type(p.out),
            "BIAS": bias is not None,
            "COLUMNS": columns,
        },
        args,
        (p.groups * p.rows * ceil_div(p.columns, columns * _GROUP) * _GROUP,),
        (_GROUP,),
    )


def add_up_weight_grad(
    runtime: Runtime,
    c: Convolution,
    p: Correlation,
    partial: int,
    splits: int,
    pitch: int,
    pairs: Args | None = None,
) -> Launch:
    """Build the launch that adds up partial weight gradients (split, group, tap, channel, filter) of workspace `partial`.

    `pairs` are the arguments for taps of two neighbouring pixels, if they are.
    """
    taps = math.prod(c.geometry.kernel)
    channels = c.geometry.channels
    # A group transposes a square of filters by pairs of channel and tap.
    side = 32 if c.out.size >= _MANY else 16
    out_filter, out_channel, out_down, out_across = c.out.strides
    return runtime.launch(
        "conv/wgmma_split_k_reduce",
        {
            "OUT_DTYPE": c.out.dtype.name,
            "PAIRS": pairs is not None,
            "SIDE": side,
            "TAPS": taps,
            "TAPS_ACROSS": c.geometry.kernel[1],
            "UNROLLED_SPLITS": min(power_of_two_at_least(splits), _UNROLLED_SPLITS),
        },
        {
            **(pairs or {}),
            "partial": Workspace(partial),
            "out": Tensor(c.target),
            "size": p.groups * math.prod(p.column_lengths) * pitch * p.m,
            "filters": p.m,
            "channels": channels,
            "pitch": pitch,
            "splits": splits,
            "out_group": p.out_group,
            "out_filter": out_filter,
            "out_channel": out_channel,
            "out_down": out_down,
            "out_across": out_across,
        },
        (ceil_div(channels * taps, side) * _REDUCE_GROUP, ceil_div(p.m, side), p.groups),
        (_REDUCE_GROUP, 1, 1),
    )
