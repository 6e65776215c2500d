"""2D convolution problems: supported operands, and convolutions as implicit matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.conv_pieces import AddUp, whole_or_pieces
from polyhal.hal.core.settings.state import Precision
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Pair = tuple[int, int]

MAX_ELEMENTS = 1 << 31
"""Minimum number of elements of an operand or a result for which kernels' indices overflow."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of a convolution. `channels` and `filters` are per group; `size` is the input's, `result` the output's."""

    images: int
    groups: int
    channels: int
    filters: int
    size: Pair
    result: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    @property
    def taps(self) -> int:
        """Number of terms of each result."""
        return self.channels * math.prod(self.kernel)

    @property
    def pixels(self) -> int:
        """Number of pixels of an output plane."""
        return math.prod(self.result)


def geometry(x: tuple[int, ...], weight: tuple[int, ...], result: tuple[int, ...], params: Params) -> Geometry:
    """Return the geometry of a convolution with these shapes of input, weight and output, and the op's parameters."""
    groups = params["groups"]
    return Geometry(
        x[0],
        groups,
        x[1] // groups,
        weight[0] // groups,
        (x[2], x[3]),
        (result[2], result[3]),
        (weight[2], weight[3]),
        params["stride"],
        params["padding"],
        params["dilation"],
    )


def refusal(g: Geometry, *specs: InputSpec | None) -> str:
    """Return the reason why no kernel supports these operands; empty if one may."""
    if not all(isinstance(s, Spec) for s in specs):
        return "an operand is a number"
    if any(s is not None and specs[0] is not None and s.dtype is not specs[0].dtype for s in specs):
        return "the operands have different dtypes"
    if 0 in (g.images, g.channels, g.filters):
        return "an operand is empty"
    if g.images * g.groups * max(g.channels * math.prod(g.size), g.filters * g.pixels) >= MAX_ELEMENTS:
        return "an operand or the result has 2^31 elements or more"
    return ""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution, or one of its gradients, on supported operands of one dtype.

    `first` and `second` are the inputs of the op: images and weight; for the input gradient, the output's gradient and
    the weight; for the weight gradient, the output's gradient and the images.
    """

    geometry: Geometry
    first: Spec
    second: Spec
    out: Spec
    bias: int | None
    """Index of the bias in the argument list of the launch; it is contiguous."""
    target: int
    """Index of the output; workspaces follow it."""
    precision: Precision


Build = Callable[[Any, Convolution], Launch | Declined]
"""`build(runtime, convolution)` returns the launch, or the reason why there is none."""


def describe(
    op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Convolution | Declined:
    """Describe `op` on these operands, or decline with the reason why no kernel supports them."""
    first, second, *rest = inputs
    (out,) = outputs
    if not isinstance(first, Spec) or not isinstance(second, Spec):
        return Declined("an operand is a number")
    images, weight, result = {
        "conv2d": (first, second, out),
        "conv2d_input_grad": (out, second, first),
        "conv2d_weight_grad": (second, out, first),
    }[op]
    g = geometry(images.shape, weight.shape, result.shape, params)
    bias = rest[0] if rest else None
    reason = refusal(g, first, second, *([] if bias is None else [bias]))
    if not reason and isinstance(bias, Spec) and not bias.is_contiguous:
        reason = "the bias is not contiguous"
    if reason:
        return Declined(reason)
    bias_index = None if bias is None else 2
    return Convolution(g, first, second, out, bias_index, len(inputs), params.get("precision", "highest"))


def lowerings(
    forward: Build, input_grad: Build, weight_grad: Build, add_up: AddUp | None = None
) -> dict[str, LoweringFunction]:
    """Return the lowering functions of convolution and its two gradients; batches that are too large are split."""
    return {
        "conv2d": _lowering("conv2d", forward),
        "conv2d_input_grad": _lowering("conv2d_input_grad", input_grad),
        "conv2d_weight_grad": _lowering("conv2d_weight_grad", weight_grad, add_up),
    }


def _whole(
    op: str,
    build: Build,
    runtime: Any,
    inputs: tuple[InputSpec | None, ...],
    outputs: tuple[Spec, ...],
    params: Params,
) -> Launch | Declined:
    c = describe(op, inputs, outputs, params)
    return c if isinstance(c, Declined) else build(runtime, c)


def _lowering(op: str, build: Build, add_up: AddUp | None = None) -> LoweringFunction:
    def lower(
        runtime: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
    ) -> Launch | Declined:
        add = add_up and partial(add_up, runtime)
        return whole_or_pieces(op, partial(_whole, op, build, runtime), inputs, outputs, params, add)

    return lower


@dataclass(frozen=True, slots=True)
class Correlation:
    """A convolution, or one of its gradients, as an implicit GEMM: a matrix (m, k) times windows of images (k, n), per group.

    The terms (axis k) and the columns of the result (axis n) are multi-indices of three digits. The lengths of the last
    two digits are fields; the first digit is unbounded. Term t of row r of the matrix is at `group * a_group + r *
    a_row + sum(t[i] * a_terms[i])`; result (r, c) goes to `group * out_group + r * out_row + sum(c[i] *
    out_columns[i])`. The right operand at (t, c) is the pixel at `origin + t[1:] * term_step + c[1:] * column_step` of
    an image of `size`, or 0 outside it. That image is at `group * x_group + t[0] * x_term + c[0] * x_column` and has
    strides `x_down` and `x_across`.

    `a_offset` and `out_offset` are the offsets of the matrix and of the result in their tensors.
    """

    groups: int
    m: int
    n: int
    k: int
    a_group: int
    a_row: int
    a_terms: tuple[int, int, int]
    x_group: int
    x_term: int
    x_column: int
    x_down: int
    x_across: int
    term_lengths: Pair
    column_lengths: Pair
    term_step: Pair
    column_step: Pair
    origin: Pair
    size: Pair
    out_group: int
    out_row: int
    out_columns: tuple[int, int, int]
    a_offset: int = 0
    out_offset: int = 0

    @property
    def dense(self) -> bool:
        """Return whether the result is a contiguous (groups, m, n)."""
        lengths = self.column_lengths
        first, *rest = self.out_columns
        single = self.n == math.prod(lengths)
        return (
            rest == [lengths[1], 1]
            and (single or first == math.prod(lengths))
            and (self.m == 1 or self.out_row == self.n)
            and (self.groups == 1 or self.out_group == self.m * self.n)
        )


def forward(g: Geometry, x: Spec, weight: Spec, out: Spec) -> Correlation:
    """Return the convolution itself: rows are filters, columns (image, row, column), terms (channel, tap row, tap column)."""
    w, s, o = weight.strides, x.strides, out.strides
    return Correlation(
        groups=g.groups,
        m=g.filters,
        n=g.images * g.pixels,
        k=g.taps,
        a_group=g.filters * w[0],
        a_row=w[0],
        a_terms=(w[1], w[2], w[3]),
        x_group=g.channels * s[1],
        x_term=s[1],
        x_column=s[0],
        x_down=s[2],
        x_across=s[3],
        term_lengths=g.kernel,
        column_lengths=g.result,
        term_step=g.dilation,
        column_step=g.stride,
        origin=(-g.padding[0], -g.padding[1]),
        size=g.size,
        out_group=g.filters * o[1],
        out_row=o[1],
        out_columns=(o[0], o[2], o[3]),
    )


def weight_gradient(g: Geometry, grad: Spec, x: Spec, out: Spec) -> Correlation:
    """Return the weight gradient.

    Rows are filters, columns (channel, tap row, tap column), terms (image, row, column) of the output's gradient.
    """
    a, s, o = grad.strides, x.strides, out.strides
    return Correlation(
        groups=g.groups,
        m=g.filters,
        n=g.taps,
        k=g.images * g.pixels,
        a_group=g.filters * a[1],
        a_row=a[1],
        a_terms=(a[0], a[2], a[3]),
        x_group=g.channels * s[1],
        x_term=s[0],
        x_column=s[1],
        x_down=s[2],
        x_across=s[3],
        term_lengths=g.result,
        column_lengths=g.kernel,
        term_step=g.stride,
        column_step=g.dilation,
        origin=(-g.padding[0], -g.padding[1]),
        size=g.size,
        out_group=g.filters * o[0],
        out_row=o[0],
        out_columns=(o[1], o[2], o[3]),
    )


def input_gradient(g: Geometry, grad: Spec, weight: Spec, out: Spec) -> list[Correlation]:
    """Return one product per phase: pixels with equal remainder by the stride share a set of taps.

    Rows are channels, columns (image, row, column) of the pixels of the phase, terms (filter, tap row, tap column).
    Phases without taps are omitted: their gradient is 0.
    """
    a, w, o = grad.strides, weight.strides, out.strides
    products = []
    for down in _taps(g, 0):
        for across in _taps(g, 1):
            products.append(
                Correlation(
                    groups=g.groups,
                    m=g.channels,
                    n=g.images * down.pixels * across.pixels,
                    k=g.filters * down.count * across.count,
                    a_group=g.filters * w[0],
                    a_row=w[1],
                    a_terms=(w[0], down.step * w[2], across.step * w[3]),
                    x_group=g.filters * a[1],
                    x_term=a[1],
                    x_column=a[0],
                    x_down=a[2],
                    x_across=a[3],
                    term_lengths=(down.count, across.count),
                    column_lengths=(down.pixels, across.pixels),
                    term_step=(-down.reach, -across.reach),
                    column_step=(1, 1),
                    origin=(down.origin, across.origin),
                    size=g.result,
                    out_group=g.channels * o[1],
                    out_row=o[1],
                    out_columns=(o[0], g.stride[0] * o[2], g.stride[1] * o[3]),
                    a_offset=down.first * w[2] + across.first * w[3],
                    out_offset=down.remainder * o[2] + across.remainder * o[3],
                )
            )
    return products


@dataclass(frozen=True, slots=True)
class _Taps:
    """The taps `first`, `first + step` ... that contribute to the pixels `remainder`, `remainder + stride` ... of an axis.

    Tap `first + step * i` of pixel `remainder + stride * j` reads element `origin + j - reach * i` of the output.
    """

    remainder: int
    pixels: int
    first: int
    step: int
    count: int
    origin: int
    reach: int


def _taps(g: Geometry, axis: int) -> list[_Taps]:
    stride, dilation, padding = g.stride[axis], g.dilation[axis], g.padding[axis]
    step = stride // math.gcd(stride, dilation)
    phases = []
    for remainder in range(min(stride, g.size[axis])):
        firsts = [r for r in range(min(step, g.kernel[axis])) if (remainder + padding - r * dilation) % stride == 0]
        for first in firsts:
            origin = (remainder + padding - first * dilation) // stride
            pixels = ceil_div(g.size[axis] - remainder, stride)
            count = ceil_div(g.kernel[axis] - first, step)
            phases.append(_Taps(remainder, pixels, first, step, count, origin, step * dilation // stride))
    return phases
