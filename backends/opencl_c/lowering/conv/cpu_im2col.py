"""Convolution and its gradients on CPUs as matrix products of weights in place and columns of pixels in memory (im2col).

The columns of all images form one matrix, so vectors are full however small the planes are. The weights are read once
and in place: with many channels of few pixels, they are most of the memory.
"""

from __future__ import annotations

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.common.problems.gemm import SUM_DTYPES, Matrix, Product
from polyhal.backends.opencl_c.lowering.conv.cpu_columns import col2im, im2col, single_pixel_windows, windows
from polyhal.backends.opencl_c.lowering.gemm import cpu_panels
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Launch


def forward(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launches of the convolution, with its bias."""
    g, weight, sums = c.geometry, c.second, _sums_dtype(c)
    columns, rows, n = c.target + 1, c.target + 2, g.images * g.pixels
    gather, column_bytes = im2col(runtime, c.first, 0, columns, windows(g))
    left = Matrix(1, weight.strides[0], weight.strides[3], (0, 0, g.filters * weight.strides[0]))
    product = _product(runtime, c, (g.filters, n, g.taps), left, _lines(columns, g.taps, n), rows, sums)
    scatter = col2im(runtime, rows, c.out, c.target, single_pixel_windows(g.result), c.bias)
    row_bytes = g.groups * g.filters * n * sums.itemsize
    return LaunchSequence((gather, product, scatter), (column_bytes, row_bytes))


def input_grad(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launches of the input gradient."""
    g, weight, sums = c.geometry, c.second, _sums_dtype(c)
    grads, columns, n = c.target + 1, c.target + 2, g.images * g.pixels
    gather, grad_bytes = im2col(runtime, c.first, 0, grads, single_pixel_windows(g.result))
    left = Matrix(1, weight.strides[3], weight.strides[0], (0, 0, g.filters * weight.strides[0]))
    product = _product(runtime, c, (g.taps, n, g.filters), left, _lines(grads, g.filters, n), columns, sums)
    scatter = col2im(runtime, columns, c.out, c.target, windows(g), None)
    column_bytes = g.groups * g.taps * n * sums.itemsize
    return LaunchSequence((gather, product, scatter), (grad_bytes, column_bytes))


def weight_grad(runtime: Runtime, c: Convolution) -> Launch:
    """Build the launches of the weight gradient."""
    g = c.geometry
    grads, columns, n = c.target + 1, c.target + 2, g.images * g.pixels
    gather, grad_bytes = im2col(runtime, c.first, 0, grads, single_pixel_windows(g.result))
    spread, column_bytes = im2col(runtime, c.second, 1, columns, windows(g))
    left, right = _lines(grads, g.filters, n), _lines(columns, g.taps, n).transposed()
    product = _product(runtime, c, (g.filters, g.taps, n), left, right, c.target, c.out.dtype)
    return LaunchSequence((gather, spread, product), (grad_bytes, column_bytes, *product.workspace))


def _sums_dtype(c: Convolution) -> DType:
    return SUM_DTYPES[register_class(c.out.dtype)]


def _lines(workspace: int, lines: int, length: int) -> Matrix:
    """Return the batch of all groups' matrices in a workspace."""
    return Matrix(workspace, length, 1, (0, 0, lines * length))


def _product(
    runtime: Runtime, c: Convolution, shape: tuple[int, int, int], left: Matrix, right: Matrix, out: int, dtype: DType
) -> Launch:
    """Build the launch of all groups' products, of shape (m, n, k); arguments after the result are workspaces."""
    m, n, k = shape
    result = Matrix(out, n, 1, (0, 0, m * n))
    p = Product((1, 1, c.geometry.groups), m, n, k, left, right, result, c.out.dtype, dtype, None, c.target + 3)
    a, b, memory = (Workspace(i) if i > c.target else Tensor(i) for i in (left.place, right.place, out))
    return cpu_panels.build(runtime, p, a=a, b=b, out=memory)
