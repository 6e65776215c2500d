"""Convolution and its gradients, each as one or more products of a matrix and windows that are never laid out.

The kernels are those of matrix products with another right operand: tiles on GPUs, blocks on CPUs and where a group has
few filters, as in depthwise convolution, and dot products where there are few results besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.conv import (
    Convolution,
    Correlation,
    Pair,
    forward,
    input_gradient,
    lowerings,
    weight_gradient,
)
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.wgpu.launch import Parameter
from polyhal.backends.wgpu.lowering.gemm import dispatch
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import Part, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

Places = tuple[int, int, int | None, int, int]
"""Of the matrix, the images, the bias, the output and the workspace in the argument list of a launch."""

_FEW = 4
"""Filters per group up to which most of a tile would be empty."""
_DOT_GROUP = 128
_DOT_GROUP_CPU = 8
_ROOM = 1 << 15
"""Lengths and steps share parameters in pairs of 16 bits."""


def _forward(runtime: Runtime, c: Convolution) -> Launch | Declined:
    reason = _unfit(runtime, c)
    if reason:
        return Declined(reason)
    product = forward(c.geometry, c.first, c.second, c.out)
    return correlate(runtime, "conv2d", product, c.first.dtype, c.out, (1, 0, c.bias, c.target, c.target + 1))


def _weight_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    reason = _unfit(runtime, c)
    if reason:
        return Declined(reason)
    product = weight_gradient(c.geometry, c.first, c.second, c.out)
    places = (0, 1, None, c.target, c.target + 1)
    return correlate(runtime, "conv2d_weight_grad", product, c.first.dtype, c.out, places)


def _input_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    reason = _unfit(runtime, c)
    if reason:
        return Declined(reason)
    g, slope, weight, out = c.geometry, c.first, c.second, c.out
    places = (1, 0, None, c.target, c.target + 1)
    phases = input_gradient(g, slope, weight, out)
    if g.stride == (1, 1):
        return correlate(runtime, "conv2d_input_grad", phases[0], slope.dtype, out, places)
    steps: list[Callable[..., None]] = []
    if sum(phase.n for phase in phases) < g.images * math.prod(g.size):
        steps.append(_zeros(runtime, out))
    for phase in phases:
        launch = correlate(runtime, "conv2d_input_grad", phase, slope.dtype, out, places)
        steps.append(Part((slope, weight), (out,), (0, phase.a_offset, phase.out_offset)).around(launch))
    return LaunchSequence("conv2d_input_grad", steps)


def _zeros(runtime: Runtime, out: Spec) -> Callable[..., None]:
    fill = copy.fill(runtime, out)

    def run(*args: Any) -> None:
        fill(0, args[2])

    return run


def _unfit(runtime: Runtime, c: Convolution) -> str:
    """Why these operands do not fit the kernels, or nothing."""
    g = c.geometry
    if (
        max(*g.size, *g.result, *g.stride, *g.padding, *(k * d for k, d in zip(g.kernel, g.dilation, strict=True)))
        >= _ROOM
    ):
        return f"an image, stride, padding or window of {_ROOM} pixels or more"
    return "an operand is larger than what a kernel can see" if too_large(runtime, c.first, c.second, c.out) else ""


def correlate(runtime: Runtime, name: str, c: Correlation, dtype: DType, out: Spec, places: Places) -> Launch:
    """A launch for operands of `dtype`. It needs no workspace unless the result is dense."""
    matrix, images, bias, result, temporary = places
    p = Product(
        (1, 1, c.groups), c.m, c.n, c.k, Matrix(matrix, 0, 0, (0, 0, 0)), Matrix(images, 0, 0, (0, 0, 0)),
        Matrix(result, c.n, 1, (0, 0, c.m * c.n)), dtype, out.dtype, bias, temporary, 1, 0,
    )  # fmt: skip
    few = c.m <= _FEW
    if few and c.n <= c.k:
        return _dots(runtime, name, c, p)
    small = few or runtime.features.cpu
    tile = dispatch.choose_tile(runtime, p)
    block = replace(dispatch.choose_block(runtime, c.m, c.n, c.k), quads=1)
    shape: dispatch.Tile | dispatch.Block = block if small else tile
    groups = c.groups * shape.count(c.m, c.n)
    splits, terms = 1, c.k
    if c.dense and (bias is None or c.groups == 1):
        splits, terms = dispatch.share_out(runtime, p, groups, small=small)
    definitions = {
        **dispatch.definitions(p, split=splits > 1), **shape.definitions(), "OUT_LANES": _out_lanes(c, out),
        "ALONG": "terms" if math.prod(c.term_lengths) > math.prod(c.column_lengths) else "columns",
    }  # fmt: skip
    source = "conv/implicit_gemm_blocks" if small else "conv/implicit_gemm"
    multiply = runtime.launch(name, source, definitions, _parameters(c, p, terms, split=splits > 1), groups * splits)
    return dispatch.finish(runtime, p, multiply, splits)


def _dots(runtime: Runtime, name: str, c: Correlation, p: Product) -> Launch:
    group = _DOT_GROUP_CPU if runtime.features.cpu else _DOT_GROUP
    shape = {**group_reduce.definitions(runtime, group, group), "ROWS": c.m, "OUT_LANES": 1}
    definitions = dispatch.definitions(p, split=False) | shape
    return runtime.launch(
        name, "conv/direct_weight_grad", definitions, _parameters(c, p, c.k, split=False), c.groups * c.n
    )


def _out_lanes(c: Correlation, out: Spec) -> int:
    """4 where any four columns from a multiple of 4 on lie side by side in the output."""
    plane = math.prod(c.column_lengths)
    first, *rest = c.out_columns
    joined = first == plane or c.n == plane
    whole = c.n % 4 == 0 if joined else plane % 4 == 0 and first % 4 == 0
    even = out.aligned and c.out_offset == 0 and c.out_row % 4 == 0 and c.out_group % 4 == 0
    return 4 if rest == [c.column_lengths[1], 1] and whole and even and out.dtype.itemsize <= 4 else 1


def _parameters(c: Correlation, p: Product, terms: int, *, split: bool) -> list[Parameter]:
    """The parameters of conv/windows.wgsl."""
    bias: list[Parameter] = [] if p.bias is None else [Tensor(p.bias)]
    targets = [Workspace(p.workspace)] if split else [*bias, Tensor(p.out.place)]
    pairs = (c.term_lengths, c.column_lengths, c.term_step, c.column_step, c.origin, c.size)
    out = () if split else (c.out_group, c.out_row, *c.out_columns)
    return [
        Tensor(p.left.place), Tensor(p.right.place), *targets,
        *dispatch.uints(c.m, c.n, c.k, terms, c.groups, c.a_group, c.a_row, *c.a_terms),
        *dispatch.uints(c.x_group, c.x_term, c.x_column, c.x_down, c.x_across, *map(_packed, pairs), *out),
    ]  # fmt: skip


def _packed(pair: Pair) -> int:
    down, across = pair
    return (down & 0xFFFF) | (across & 0xFFFF) << 16


LOWERINGS = lowerings(_forward, _input_grad, _weight_grad)
