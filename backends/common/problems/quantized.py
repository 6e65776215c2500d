"""Quantised weights in the form that kernels take: products of rows of x with them, and rows of them by number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.problems.gather import flat_stride
from polyhal.backends.common.problems.gemm import Product, describe
from polyhal.hal import dtypes, layout
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec
from polyhal.hal.quantization.block_format import BlockFormat
from polyhal.hal.quantization.formats import FORMATS

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


@dataclass(frozen=True, slots=True)
class QuantizedProduct:
    """`m` rows of x, of `k` numbers each, with `n` rows of weights in tiles."""

    form: BlockFormat
    dtype: DType
    m: int
    n: int
    k: int
    x_row: int
    """Stride from one row of x to the next. Numbers of a row are contiguous."""

    def args(self) -> Arguments:
        """Return the arguments that all kernels have."""
        return {
            "x": Strided(Tensor(0), {"row": self.x_row}),
            "blocks": Tensor(1),
            "out": Tensor(2),
            "rows": self.m,
            "n": self.n,
            "k": self.k,
        }


def unreadable(blocks: Spec) -> Declined | None:
    """Return the reason why kernels, which read whole words, cannot read these blocks; None if they can."""
    if not layout.is_contiguous(blocks.shape, blocks.strides):
        return Declined("the blocks are not contiguous")
    return None if blocks.aligned else Declined("the blocks begin inside a word")


def blocks_in_tiles(blocks: InputSpec | None, out: Spec, params: Params) -> Spec | Declined:
    """Return the blocks whose weights an op decodes to `out`, or the reason why kernels cannot."""
    if not isinstance(blocks, Spec):
        return Declined("the blocks are a number")
    if refused := unreadable(blocks):
        return refused
    if not params["in_tiles"]:
        return Declined("the kernels read weights in tiles")
    if out.dtype is dtypes.float64:
        return Declined("the kernels decode to 32 bits or fewer")
    if max(out.shape, default=0) >= 1 << 31 or blocks.shape[0] >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    return blocks


@dataclass(frozen=True, slots=True)
class RowsByIndex:
    """Rows of a table of blocks, and the stride between their numbers."""

    blocks: Spec
    index: Spec
    step: int


def rows_by_index(inputs: tuple[InputSpec | None, ...], out: Spec, params: Params) -> RowsByIndex | Declined:
    """Return the rows that an op decodes to `out`, or the reason why kernels cannot."""
    blocks, index = blocks_in_tiles(inputs[0], out, params), inputs[1]
    if isinstance(blocks, Declined):
        return blocks
    if not isinstance(index, Spec):
        return Declined("the index is a number")
    step = flat_stride(index)
    return Declined("the index is not evenly spaced") if step is None else RowsByIndex(blocks, index, step)


def product(
    inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> QuantizedProduct | Declined:
    """Return the product that an op computes."""
    x, blocks, (out,) = inputs[0], inputs[1], outputs
    if not isinstance(x, Spec) or not isinstance(blocks, Spec):
        return Declined("an operand is a number")
    if params["transposed"] or not params["in_tiles"]:
        return Declined("the kernels multiply by rows of weights in tiles")
    if x.dtype is dtypes.float64:
        return Declined("the kernels add in float32")
    if refused := unreadable(blocks):
        return refused
    m, k = math.prod(x.shape[:-1]), x.shape[-1]
    rows = layout.reshape(x, (m, k))
    if not m or rows is None or (k > 1 and rows.strides[1] != 1):
        return Declined("the rows of x have no common stride")
    return QuantizedProduct(FORMATS[params["format"]], x.dtype, m, out.shape[-1], k, rows.strides[0])


def whole_product(inputs: tuple[InputSpec | None, ...], out: Spec, params: Params) -> Product | Declined:
    """Return the product of x with weights in tiles as one with a matrix, which has the strides of their numbers."""
    x, blocks = inputs[:2]
    if not isinstance(x, Spec) or not isinstance(blocks, Spec):
        return Declined("an operand is a number")
    if params["transposed"] or not params["in_tiles"]:
        return Declined("the kernels multiply by rows of weights in tiles")
    if refused := unreadable(blocks):
        return refused
    m, k, n = math.prod(x.shape[:-1]), x.shape[-1], out.shape[-1]
    rows = layout.reshape(x, (m, k))
    if rows is None or not out.is_contiguous:
        return Declined("the rows of x have no common stride, or the result is not contiguous")
    lines = Spec(x.dtype, rows.shape, rows.strides, x.aligned)
    whole, results = Spec(x.dtype, (k, n), (1, k), blocks.aligned), Spec(out.dtype, (m, n), (n, 1), out.aligned)
    return describe(lines, whole, results, (0, 1, None, len(inputs), len(inputs) + 1))
