"""Arguments of all convolution kernels (shaders/wgsl/conv/windows.wgsl)."""

from __future__ import annotations

import math

from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.problems.conv import Correlation, Pair
from polyhal.backends.common.problems.gemm import Product
from polyhal.hal.layout import Spec


def out_lanes(c: Correlation, out: Spec) -> int:
    """Return 4 if each aligned group of four columns is contiguous in the output, else 1."""
    plane = math.prod(c.column_lengths)
    first, *rest = c.out_columns
    merged = first == plane or c.n == plane
    whole = c.n % 4 == 0 if merged else plane % 4 == 0 and first % 4 == 0
    aligned = out.aligned and c.out_offset == 0 and c.out_row % 4 == 0 and c.out_group % 4 == 0
    return 4 if rest == [c.column_lengths[1], 1] and whole and aligned and out.dtype.itemsize <= 4 else 1


def arguments(c: Correlation, p: Product, split_length: int, *, split: bool) -> Arguments:
    """Return the arguments of conv/windows.wgsl; with `split`, the output is the workspace for partial sums."""
    target: Arguments = {"partial": Workspace(p.workspace)} if split else _output(c, p)
    return {
        "a": Tensor(p.left.place),
        "x": Tensor(p.right.place),
        **target,
        "m": c.m,
        "n": c.n,
        "k": c.k,
        "split_length": split_length,
        "count": c.groups,
        "a_group": c.a_group,
        "a_row": c.a_row,
        **{f"a_term{i}": stride for i, stride in enumerate(c.a_terms)},
        "x_group": c.x_group,
        "x_term": c.x_term,
        "x_column": c.x_column,
        "x_down": c.x_down,
        "x_across": c.x_across,
        "term_lengths": _pack(c.term_lengths),
        "column_lengths": _pack(c.column_lengths),
        "term_step": _pack(c.term_step),
        "column_step": _pack(c.column_step),
        "origin": _pack(c.origin),
        "size": _pack(c.size),
    }


def _output(c: Correlation, p: Product) -> Arguments:
    return {
        "out": Tensor(p.out.place),
        **({} if p.bias is None else {"bias": Tensor(p.bias)}),
        "out_group": c.out_group,
        "out_row": c.out_row,
        **{f"out_column{i}": stride for i, stride in enumerate(c.out_columns)},
    }


def _pack(pair: Pair) -> int:
    """Pack two 16-bit numbers into one parameter."""
    down, across = pair
    return (down & 0xFFFF) | (across & 0xFFFF) << 16
