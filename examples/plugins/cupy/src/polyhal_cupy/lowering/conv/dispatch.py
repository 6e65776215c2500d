"""Convolution and its gradients as im2col and matrix products by cuBLAS.

A 1 x 1 kernel needs no im2col: the image is the matrix. If the columns of all images exceed a memory limit, images are
processed in parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import conv
from polyhal.backends.common.problems.conv import Geometry
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch, SimpleLaunch
from polyhal_cupy import blas
from polyhal_cupy.lowering.conv.im2col import ConvSteps
from polyhal_cupy.lowering.gemm.cublas import BatchedGemm, Matrices
from polyhal_cupy.lowering.pointwise.copy import copy as copy_launch
from polyhal_cupy.runtime import Runtime

_COLUMN_BYTES = 512 * 2**20
"""Maximum bytes for the columns of one part of the images."""
_MAX_IMAGES = 64
"""Maximum images per part of a grouped convolution, to limit the cuBLAS calls for groups or images."""


def _refusal(g: Geometry, first: InputSpec | None, *others: InputSpec | None) -> str:
    refusal = conv.refusal(g, first, *others)
    return refusal or ("" if first is not None and blas.supports(first.dtype) else "cuBLAS does not support the dtype")


def _column_rows(g: Geometry) -> int:
    """Return the rows of the im2col matrix of all groups."""
    return g.groups * g.taps


def _is_pointwise(g: Geometry) -> bool:
    return g.kernel == g.stride == (1, 1) and g.padding == (0, 0)


def _parts(g: Geometry, itemsize: int) -> list[tuple[int, int]]:
    """Return (first image, number of images) of parts whose columns fit in memory."""
    images = max(1, min(_COLUMN_BYTES // (_column_rows(g) * g.pixels * itemsize), g.images))
    if g.groups > 1:
        images = min(images, _MAX_IMAGES)
    return [(n, min(images, g.images - n)) for n in range(0, g.images, images)]


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, weight, bias = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = conv.geometry(x.shape, weight.shape, out.shape, params)
    refusal = _refusal(g, x, weight, *([] if bias is None else [bias]))
    if refusal:
        return Declined(refusal)
    steps = ConvSteps(runtime, g, 4)
    kernels = steps.make_contiguous(1, weight)
    if isinstance(bias, Spec):
        # The products are added to the bias, so that half precision is rounded once.
        broadcast = Spec(bias.dtype, out.shape, (0, bias.strides[0], 0, 0), False)
        steps.add(copy_launch(runtime, broadcast, out, (2, 3)))
    direct = _is_pointwise(g) and x.strides[3] == 1 and x.strides[2] == x.shape[3]
    parts = [(0, g.images)] if direct and g.groups == 1 else _parts(g, x.dtype.itemsize)
    span, image = _column_rows(g) * g.pixels, g.groups * g.filters * g.pixels
    columns = 0 if direct else steps.workspace(parts[0][1] * span * x.dtype.itemsize)
    left = Matrices(kernels, g.taps, 1, (0, g.filters * g.taps))
    for first, images in parts:
        if direct:
            right = Matrices(0, x.strides[1], 1, (x.strides[0], g.channels * x.strides[1]), first * x.strides[0])
        else:
            steps.im2col(x, 0, columns, (first, images), g.pixels, span)
            right = Matrices(columns, g.pixels, 1, (span, g.taps * g.pixels))
        target = Matrices(3, g.pixels, 1, (image, g.filters * g.pixels), first * image)
        steps.multiply(
            BatchedGemm(
                (images, g.groups), g.filters, g.pixels, g.taps, left, right, target, x.dtype, out.dtype, 1.0,
                float(bias is not None),
            ),
            "conv2d.product",
        )  # fmt: skip
    return steps.build()


def _input_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    grad, weight = inputs
    (dx,) = outputs
    if not isinstance(grad, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = conv.geometry(dx.shape, weight.shape, grad.shape, params)
    refusal = _refusal(g, grad, weight)
    if refusal:
        return Declined(refusal)
    steps = ConvSteps(runtime, g, 3)
    gradients, kernels = steps.make_contiguous(0, grad), steps.make_contiguous(1, weight)
    direct = _is_pointwise(g)
    column_dtype = dx.dtype if direct else accumulator(dx.dtype)
    parts = [(0, g.images)] if direct and g.groups == 1 else _parts(g, column_dtype.itemsize)
    span, image = _column_rows(g) * g.pixels, g.groups * g.filters * g.pixels
    columns = 2 if direct else steps.workspace(parts[0][1] * span * column_dtype.itemsize)
    left = Matrices(kernels, g.taps, 1, (0, g.filters * g.taps)).transposed
    for first, images in parts:
        right = Matrices(gradients, g.pixels, 1, (image, g.filters * g.pixels), first * image)
        target = Matrices(columns, g.pixels, 1, (span, g.taps * g.pixels), first * span if direct else 0)
        steps.multiply(
            BatchedGemm((images, g.groups), g.taps, g.pixels, g.filters, left, right, target, grad.dtype, column_dtype),
            "conv2d_input_grad.product",
        )
        if not direct:
            steps.col2im(dx, columns, 2, (first, images), g.pixels, span)
    return steps.build()


def _weight_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    grad, x = inputs
    (dw,) = outputs
    if not isinstance(grad, Spec) or not isinstance(x, Spec):
        return Declined("an operand is a number")
    g = conv.geometry(x.shape, dw.shape, grad.shape, params)
    refusal = _refusal(g, grad, x)
    if refusal:
        return Declined(refusal)
    steps = ConvSteps(runtime, g, 3)
    parts = _parts(g, x.dtype.itemsize)
    columns = steps.workspace(parts[0][1] * _column_rows(g) * g.pixels * x.dtype.itemsize)
    # Sums over several parts accumulate in float32, so that half precision is rounded once.
    sum_dtype = accumulator(dw.dtype) if len(parts) > 1 else dw.dtype
    target = steps.workspace(dw.size * sum_dtype.itemsize) if sum_dtype is not dw.dtype else 2
    for i, (first, images) in enumerate(parts):
        # In columns and gradients, images are adjacent along k, so that one product sums over all of them.
        terms = images * g.pixels
        steps.im2col(x, 1, columns, (first, images), terms, g.pixels)
        order = (g.groups * g.filters, images, *g.result)
        offset = first * grad.strides[0]
        view = Spec(
            grad.dtype, order, (grad.strides[1], grad.strides[0], *grad.strides[2:]),
            grad.aligned and offset % ALIGNMENT == 0,
        )  # fmt: skip
        gradients = steps.copy(0, view, contiguous(grad.dtype, order), offset)
        steps.multiply(
            BatchedGemm(
                (g.groups,), g.filters, g.taps, terms, Matrices(gradients, terms, 1, (g.filters * terms,)),
                Matrices(columns, terms, 1, (g.taps * terms,)).transposed,
                Matrices(target, g.taps, 1, (g.filters * g.taps,)), x.dtype, sum_dtype, 1.0, float(i > 0),
            ),
            "conv2d_weight_grad.product",
        )  # fmt: skip
    if sum_dtype is not dw.dtype:
        total = contiguous(sum_dtype, dw.shape)
        copy = copy_launch(runtime, total, dw)
        steps.add(SimpleLaunch(copy.name, lambda *args: copy(Ref(args[target], total), args[2])))
    return steps.build()


LOWERINGS: dict[str, LoweringFunction] = {
    "conv2d": _forward,
    "conv2d_input_grad": _input_grad,
    "conv2d_weight_grad": _weight_grad,
}
