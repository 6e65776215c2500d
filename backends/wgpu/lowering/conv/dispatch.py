"""Convolution and its gradients: one or more correlations each, and the strategy for each correlation.

`direct_weight_grad` computes correlations with few results and many terms, `implicit_gemm` all others.
"""

from __future__ import annotations

import math
from typing import Any

from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.problems.conv import (
    Convolution,
    Correlation,
    forward,
    input_gradient,
    lowerings,
    weight_gradient,
)
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.wgpu.lowering.conv import direct_weight_grad, implicit_gemm
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.support.windows import SubLaunch, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch

Places = tuple[int, int, int | None, int, int]
"""Argument indices of the matrix, the images, the bias, the output and the workspace."""

_MAX_LENGTH = 1 << 15
"""Limit of lengths and steps, which are 16-bit numbers in the kernels."""


def _forward(runtime: Runtime, c: Convolution) -> Launch | Declined:
    refusal = _refusal(runtime, c)
    if refusal:
        return Declined(refusal)
    correlation = forward(c.geometry, c.first, c.second, c.out)
    return _correlate(runtime, correlation, c.first.dtype, c.out, (1, 0, c.bias, c.target, c.target + 1))


def _weight_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    refusal = _refusal(runtime, c)
    if refusal:
        return Declined(refusal)
    correlation = weight_gradient(c.geometry, c.first, c.second, c.out)
    places = (0, 1, None, c.target, c.target + 1)
    return _correlate(runtime, correlation, c.first.dtype, c.out, places)


def _input_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    refusal = _refusal(runtime, c)
    if refusal:
        return Declined(refusal)
    g, grad, weight, out = c.geometry, c.first, c.second, c.out
    places = (1, 0, None, c.target, c.target + 1)
    phases = input_gradient(g, grad, weight, out)
    if g.stride == (1, 1):
        return _correlate(runtime, phases[0], grad.dtype, out, places)
    steps: list[Launch] = []
    if sum(phase.n for phase in phases) < g.images * math.prod(g.size):
        steps.append(_zeros(runtime, out))
    for phase in phases:
        launch = _correlate(runtime, phase, grad.dtype, out, places)
        steps.append(SubLaunch((grad, weight), (out,), (0, phase.a_offset, phase.out_offset)).bind(launch))
    return LaunchSequence(steps)


def _zeros(runtime: Runtime, out: Spec) -> Launch:
    fill = copy.fill(runtime, out)

    def run(*args: Any) -> None:
        fill(0, args[2])

    return SimpleLaunch(fill.name, run)


def _refusal(runtime: Runtime, c: Convolution) -> str:
    """Return the reason why the kernels do not support these operands; empty if they do."""
    g = c.geometry
    windows = (k * d for k, d in zip(g.kernel, g.dilation, strict=True))
    if max(*g.size, *g.result, *g.stride, *g.padding, *windows) >= _MAX_LENGTH:
        return f"an image, stride, padding or window of {_MAX_LENGTH} pixels or more"
    return (
        "an operand exceeds the device's maximum binding size" if too_large(runtime, c.first, c.second, c.out) else ""
    )


def _correlate(runtime: Runtime, c: Correlation, dtype: DType, out: Spec, places: Places) -> Launch:
    """Return a launch for operands of `dtype`. It requires workspace only for dense results."""
    matrix, images, bias, result, workspace = places
    p = Product(
        (1, 1, c.groups),
        c.m,
        c.n,
        c.k,
        Matrix(matrix, 0, 0, (0, 0, 0)),
        Matrix(images, 0, 0, (0, 0, 0)),
        Matrix(result, c.n, 1, (0, 0, c.m * c.n)),
        dtype,
        out.dtype,
        bias,
        workspace,
        1,
        0,
    )
    if c.m <= implicit_gemm.FEW_FILTERS and c.n <= c.k:
        return direct_weight_grad.build(runtime, c, p)
    return implicit_gemm.multiply(runtime, c, p, out)


LOWERINGS = lowerings(_forward, _input_grad, _weight_grad)
