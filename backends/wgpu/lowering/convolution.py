"""Convolution and its gradients, each as one or more products of a matrix and windows that are never laid out.

The kernels are those of matrix products with another right operand: tiles on GPUs, blocks on CPUs and where a group has
few filters, as in depthwise convolution, and dot products where there are few results besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from polyhal.backends.common.convolutions import (
    Correlation,
    Geometry,
    Pair,
    forward,
    geometry,
    input_gradient,
    refusal,
    weight_gradient,
)
from polyhal.backends.common.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.lowering import LoweringFunction
from polyhal.backends.common.products import Matrix, Product
from polyhal.backends.wgpu.launch import Parameter
from polyhal.backends.wgpu.lowering import matmul, movement, teams
from polyhal.backends.wgpu.lowering.windows import Part, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]
Places = tuple[int, int, int | None, int, int]
"""Of the matrix, the images, the bias, the output and the workspace in the argument list of a launch."""

_FEW = 4
"""Filters per group up to which most of a tile would be empty."""
_DOT_GROUP = 128
_DOT_GROUP_CPU = 8
_ROOM = 1 << 15
"""Lengths and steps share parameters in pairs of 16 bits."""


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, weight, bias = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = geometry(x.shape, weight.shape, out.shape, params)
    reason = refusal(g, x, weight, *([bias] if bias is not None else [])) or _unfit(runtime, g, x, weight, out)
    if not reason and isinstance(bias, Spec) and not bias.is_contiguous:
        reason = "the bias is not contiguous"
    if reason:
        return Declined(reason)
    places = (1, 0, None if bias is None else 2, 3, 4)
    return correlate(runtime, "conv2d", forward(g, x, weight, out), x.dtype, out, places)


def _weight_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    slope, x = inputs
    (out,) = outputs
    if not isinstance(slope, Spec) or not isinstance(x, Spec):
        return Declined("an operand is a number")
    g = geometry(x.shape, out.shape, slope.shape, params)
    reason = refusal(g, slope, x) or _unfit(runtime, g, slope, x, out)
    if reason:
        return Declined(reason)
    c = weight_gradient(g, slope, x, out)
    return correlate(runtime, "conv2d_weight_grad", c, x.dtype, out, (0, 1, None, 2, 3))


def _input_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    slope, weight = inputs
    (out,) = outputs
    if not isinstance(slope, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = geometry(out.shape, weight.shape, slope.shape, params)
    reason = refusal(g, slope, weight) or _unfit(runtime, g, slope, weight, out)
    if reason:
        return Declined(reason)
    places = (1, 0, None, 2, 3)
    phases = input_gradient(g, slope, weight, out)
    if g.stride == (1, 1):
        return correlate(runtime, "conv2d_input_grad", phases[0], slope.dtype, out, places)
    steps: list[Callable[..., None]] = []
    if sum(c.n for c in phases) < g.images * math.prod(g.size):
        steps.append(_zeros(runtime, out))
    for c in phases:
        launch = correlate(runtime, "conv2d_input_grad", c, slope.dtype, out, places)
        steps.append(Part((slope, weight), (out,), (0, c.a_offset, c.out_offset)).around(launch))
    return LaunchSequence("conv2d_input_grad", steps)


def _zeros(runtime: Runtime, out: Spec) -> Callable[..., None]:
    fill = movement.fill(runtime, out)

    def run(*args: Any) -> None:
        fill(0, args[2])

    return run


def _unfit(runtime: Runtime, g: Geometry, *specs: Spec) -> str:
    """Why these operands do not fit the kernels, or nothing."""
    if (
        max(*g.size, *g.result, *g.stride, *g.padding, *(k * d for k, d in zip(g.kernel, g.dilation, strict=True)))
        >= _ROOM
    ):
        return f"an image, stride, padding or window of {_ROOM} pixels or more"
    return "an operand is larger than what a kernel can see" if too_large(runtime, *specs) else ""


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
    tile = matmul.choose_tile(runtime, p)
    block = replace(matmul.choose_block(runtime, c.m, c.n, c.k), quads=1)
    shape: matmul.Tile | matmul.Block = block if small else tile
    groups = c.groups * shape.count(c.m, c.n)
    splits, terms = 1, c.k
    if c.dense and (bias is None or c.groups == 1):
        splits, terms = matmul.share_out(runtime, p, groups, small=small)
    definitions = {
        **matmul.definitions(p, split=splits > 1), **shape.definitions(), "OUT_LANES": _out_lanes(c, out),
        "ALONG": "terms" if math.prod(c.term_lengths) > math.prod(c.column_lengths) else "columns",
    }  # fmt: skip
    source = "conv_blocks" if small else "conv_tiles"
    multiply = runtime.launch(name, source, definitions, _parameters(c, p, terms, split=splits > 1), groups * splits)
    return matmul.finish(runtime, p, multiply, splits)


def _dots(runtime: Runtime, name: str, c: Correlation, p: Product) -> Launch:
    group = _DOT_GROUP_CPU if runtime.features.cpu else _DOT_GROUP
    shape = {**teams.definitions(runtime, group, group), "ROWS": c.m, "OUT_LANES": 1}
    definitions = matmul.definitions(p, split=False) | shape
    return runtime.launch(name, "conv_dots", definitions, _parameters(c, p, c.k, split=False), c.groups * c.n)


def _out_lanes(c: Correlation, out: Spec) -> int:
    """4 where any four columns from a multiple of 4 on lie side by side in the output."""
    plane = math.prod(c.column_lengths)
    first, *rest = c.out_columns
    joined = first == plane or c.n == plane
    whole = c.n % 4 == 0 if joined else plane % 4 == 0 and first % 4 == 0
    even = out.aligned and c.out_offset == 0 and c.out_row % 4 == 0 and c.out_group % 4 == 0
    return 4 if rest == [c.column_lengths[1], 1] and whole and even and out.dtype.itemsize <= 4 else 1


def _parameters(c: Correlation, p: Product, terms: int, *, split: bool) -> list[Parameter]:
    """The parameters of conv_windows.wgsl."""
    bias: list[Parameter] = [] if p.bias is None else [Tensor(p.bias)]
    targets = [Workspace(p.temporary)] if split else [*bias, Tensor(p.out.place)]
    pairs = (c.term_lengths, c.column_lengths, c.term_step, c.column_step, c.origin, c.size)
    out = () if split else (c.out_group, c.out_row, *c.out_columns)
    return [
        Tensor(p.left.place), Tensor(p.right.place), *targets,
        *matmul.uints(c.m, c.n, c.k, terms, c.groups, c.a_group, c.a_row, *c.a_terms),
        *matmul.uints(c.x_group, c.x_term, c.x_column, c.x_down, c.x_across, *map(_packed, pairs), *out),
    ]  # fmt: skip


def _packed(pair: Pair) -> int:
    down, across = pair
    return (down & 0xFFFF) | (across & 0xFFFF) << 16


LOWERINGS: dict[str, LoweringFunction] = {
    "conv2d": _forward,
    "conv2d_input_grad": _input_grad,
    "conv2d_weight_grad": _weight_grad,
}
