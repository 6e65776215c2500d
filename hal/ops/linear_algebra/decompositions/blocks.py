"""Large matrices in blocks: recursive programs of ops whose work is in matrix products (Toledo 1997; Elmroth, Gustavson 2000).

A matrix is divided in two until its blocks are small matrices or tall panels, which native kernels factor. Devices with kernels
for larger matrices need no program for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, broadcast_shapes
from polyhal.hal.ops.indexing.along_axis import take_along_axis
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.views import broadcast_to
from polyhal.hal.ops.linear_algebra.fused_matmul import fused_matmul
from polyhal.hal.ops.linear_algebra.matmul import op_matmul
from polyhal.hal.ops.pointwise.cast import cast
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep
from polyhal.hal.ops.pointwise.logic import equal
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.reductions.extrema import min_
from polyhal.hal.ops.tensor_like import TensorLike

SMALL = 64
"""The most rows and columns of matrices that are not divided."""
PANEL = 32
"""The most columns of a tall panel that is not divided."""
_NONE = 1 << 30
"""Larger than every number of a step."""
_SUBTRACT_PRODUCT: tuple[GroupStep, ...] = (("subtract", (1, 0), ()),)


def is_small(spec: Spec | TensorLike) -> bool:
    """Return whether matrices are not divided."""
    return max(spec.shape[-2:]) <= SMALL


def half(n: int, unit: int) -> int:
    """Return the first part of a length that is divided in two: a multiple of `unit`, smaller than `n` if `n` is larger."""
    return -(-n // (2 * unit)) * unit


def minus_product(c: TensorLike, a: TensorLike, b: TensorLike) -> Any:
    """Return `c - a @ b`."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if c.shape[:-2] != batch:
        return c - op_matmul(a, b)
    return fused_matmul((a, b, c), steps=_SUBTRACT_PRODUCT, numbers=())


def rows_in_order(x: TensorLike, order: TensorLike) -> Any:
    """Return matrices (..., m, n) whose row i is row `order[..., i]` of `x`. The batches broadcast."""
    shape = (*broadcast_shapes(x.shape[:-2], order.shape[:-1]), *x.shape[-2:])
    index = broadcast_to(unsqueeze(order, -1), shape)
    return take_along_axis(broadcast_to(x, shape), index, len(shape) - 2)


def first_failure(numbers: Sequence[TensorLike]) -> Any:
    """Return the first number that is not 0, or 0, of the failed steps of each part; later parts have larger numbers."""
    if len(numbers) == 1:
        return numbers[0]
    failures = concat([unsqueeze(x, -1) for x in numbers], -1)
    first = min_(where(equal(failures, 0), _NONE, failures), -1)
    return cast(where(equal(first, _NONE), 0, first), dtype=dtypes.int32)
