"""Convolutions with 1x1 kernels on images with channels last, which are matrix products: each pixel is a row."""

from __future__ import annotations

from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.opencl_c.lowering.gemm import dispatch as gemm
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Launch

_NO_BATCH = (0, 0, 0)


def forward(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build images times transposed weight, plus bias; None if operands are not such matrices."""
    product = forward_product(c)
    return None if product is None else gemm.build(runtime, product)


def forward_product(c: Convolution) -> Product | None:
    """Return images times transposed weight, plus bias; None if operands are not such matrices."""
    return _times_weight(c, c.geometry.channels, c.geometry.filters, terms=1)


def input_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the output's gradient times weight; None if operands are not such matrices."""
    product = _times_weight(c, c.geometry.filters, c.geometry.channels, terms=0)
    return None if product is None else gemm.build(runtime, product)


def weight_grad(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the transposed gradient of the output times images; None if operands are not such matrices."""
    g, x = _pixels(c, c.first), _pixels(c, c.second)
    if g is None or x is None:
        return None
    left = Matrix(0, 1, g, _NO_BATCH, c.first.aligned)
    right = Matrix(1, x, 1, _NO_BATCH, c.second.aligned)
    return gemm.build(runtime, _product(c, (c.geometry.filters, c.geometry.channels, _count(c)), left, right))


def _times_weight(c: Convolution, depth: int, columns: int, *, terms: int) -> Product | None:
    """Return images of `depth` channels times weight, whose axis `terms` has the terms; None if these are not matrices."""
    x, out = _pixels(c, c.first), _pixels(c, c.out)
    if x is None or out != columns:
        return None
    weight = c.second
    left = Matrix(0, x, 1, _NO_BATCH, c.first.aligned)
    right = Matrix(1, weight.strides[terms], weight.strides[1 - terms], _NO_BATCH, weight.aligned)
    return _product(c, (_count(c), columns, depth), left, right)


def _count(c: Convolution) -> int:
    return c.geometry.images * c.geometry.pixels


def _pixels(c: Convolution, images: Spec) -> int | None:
    """Return the distance of neighbouring pixels in images whose channels are contiguous; None for other convolutions."""
    g = c.geometry
    if g.groups != 1 or g.kernel != (1, 1) or g.stride != (1, 1) or g.padding != (0, 0):
        return None
    (n, channels, *size), (image, channel, *steps) = images.shape, images.strides
    if channels > 1 and channel != 1:
        return None
    lengths, (strides,) = collapse((n, *size), ((image, *steps),))
    if len(lengths) != 1:
        return None
    return strides[0] if lengths[0] > 1 else channels


def _product(c: Convolution, lengths: tuple[int, int, int], left: Matrix, right: Matrix) -> Product:
    m, n, k = lengths
    out = Matrix(c.target, n, 1, (m * n, m * n, m * n), c.out.aligned)
    return Product(
        (1, 1, 1), m, n, k, left, right, out, c.first.dtype, c.out.dtype, c.bias, c.target + 1, precision=c.precision
    )
