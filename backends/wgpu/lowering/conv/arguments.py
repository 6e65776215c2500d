"""What the convolution kernels share: the parameters of shaders/wgsl/conv/windows.wgsl."""

from __future__ import annotations

import math

from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.common.problems.conv import Correlation, Pair
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.launch import Parameter
from polyhal.backends.wgpu.lowering.gemm.arguments import uints
from polyhal.hal.layout import Spec


def out_lanes(c: Correlation, out: Spec) -> int:
    """Return 4 if four columns from any multiple of 4 on are contiguous in the output, else 1."""
    plane = math.prod(c.column_lengths)
    first, *rest = c.out_columns
    merged = first == plane or c.n == plane
    whole = c.n % 4 == 0 if merged else plane % 4 == 0 and first % 4 == 0
    aligned = out.aligned and c.out_offset == 0 and c.out_row % 4 == 0 and c.out_group % 4 == 0
    return 4 if rest == [c.column_lengths[1], 1] and whole and aligned and out.dtype.itemsize <= 4 else 1


def parameters(c: Correlation, p: Product, split_length: int, *, split: bool) -> list[Parameter]:
    """Return the parameters of conv/windows.wgsl; with `split`, the output is the workspace for partial sums."""
    bias: list[Parameter] = [] if p.bias is None else [Tensor(p.bias)]
    targets = [Workspace(p.workspace)] if split else [*bias, Tensor(p.out.place)]
    pairs = (c.term_lengths, c.column_lengths, c.term_step, c.column_step, c.origin, c.size)
    out = () if split else (c.out_group, c.out_row, *c.out_columns)
    return [
        Tensor(p.left.place), Tensor(p.right.place), *targets,
        *uints(c.m, c.n, c.k, split_length, c.groups, c.a_group, c.a_row, *c.a_terms),
        *uints(c.x_group, c.x_term, c.x_column, c.x_down, c.x_across, *map(_pack, pairs), *out),
    ]  # fmt: skip


def _pack(pair: Pair) -> int:
    """Pack two 16-bit numbers into one parameter."""
    down, across = pair
    return (down & 0xFFFF) | (across & 0xFFFF) << 16
