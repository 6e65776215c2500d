"""Grouped matrix products, as in mixture-of-experts layers, without reading where the groups end.

Groups are rows of a matrix, and their ends are data of the device. The rows are copied into blocks of equal size, so that each
block belongs to one group; a batched product multiplies the blocks. Blocks have the mean size of a group, so that there are at
most twice as many as groups, and a program does not depend on the ends: steps can be recorded and compiled, and nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, UnsupportedArgumentsError, arange, cast, zeros

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("_grouped_mm")
def grouped_mm(a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Multiply each group of rows of `a` (s, k), or of columns of `b`, by its own matrix; or (m, s) by (s, n) in parts.

    Groups end at `offs`. Rows behind the last end are 0 in the result, where PyTorch leaves them undefined.
    """
    if bias is not None:
        raise UnsupportedArgumentsError
    if offs is None:
        return cast(F["matmul"](a, b), out_dtype)
    if a.ndim == 2 and b.ndim == 3:
        out = _rows_by_matrices(a, b, offs)
    elif a.ndim == 3 and b.ndim == 2:
        out = transposed(_rows_by_matrices(transposed(b), transposed(a), offs))
    else:
        out = _products_of_groups(transposed(a), b, offs)
    return cast(out, out_dtype)


class _Blocks:
    """Division of `rows` rows, whose groups end at `ends`, into blocks that each belong to one group."""

    def __init__(self, ends: Tensor, rows: int) -> None:
        groups = ends.shape[0]
        self.size = -(-rows // groups)
        """Rows of a block."""
        count = (rows + groups * (self.size - 1)) // self.size
        ends = cast(ends, dtypes.int64)
        starts = F["concat"]([zeros((1,), dtypes.int64, ends.device), ends[:-1]], 0)
        last_blocks = F["cumsum"](F["floor_divide"](ends - starts + (self.size - 1), self.size), 0)
        first_rows = F["concat"]([zeros((1,), dtypes.int64, ends.device), last_blocks[:-1]], 0) * self.size
        """Rows of the blocks, numbered through, at which the groups start."""
        shift = starts - first_rows
        numbers = F["searchsorted"](last_blocks, arange(count, ends.device), right=True)
        self.groups = F["minimum"](numbers, groups - 1)
        """Group of each block."""
        row = F["reshape"](arange(count * self.size, ends.device), (count, self.size))
        row = row + F["reshape"](F["take"](shift, self.groups), (count, 1))
        self.is_used = F["less"](row, F["reshape"](F["take"](ends, self.groups), (count, 1)))
        """True for rows of a block (blocks, size) that are rows of the matrix."""
        self._row = F["minimum"](row, rows - 1)
        own = arange(rows, ends.device)
        group = F["searchsorted"](ends, own, right=True)
        self._is_grouped = F["less"](group, groups)
        self._place = own - F["take"](shift, F["minimum"](group, groups - 1))

    def of(self, x: Tensor) -> Any:
        """Copy the rows of a matrix into blocks (blocks, size, columns). Rows that are not used hold arbitrary values."""
        return F["take"](x, self._row)

    def joined(self, blocks: Any) -> Any:
        """Return the rows of blocks as a matrix, with zeros behind the last group."""
        flat = F["reshape"](blocks, (-1, blocks.shape[-1]))
        place = F["minimum"](self._place, flat.shape[0] - 1)
        return F["where"](F["reshape"](self._is_grouped, (-1, 1)), F["take"](flat, place), 0)


def _rows_by_matrices(x: Tensor, matrices: Tensor, ends: Tensor) -> Any:
    """Multiply each group of rows (s, k) by its own of the matrices (groups, k, n)."""
    if not x.shape[0]:
        return zeros((0, matrices.shape[2]), x.dtype, x.device)
    blocks = _Blocks(ends, x.shape[0])
    return blocks.joined(F["matmul"](blocks.of(x), _matrices_at(matrices, blocks.groups)))


def _products_of_groups(x: Tensor, y: Tensor, ends: Tensor) -> Any:
    """Multiply the transpose of each group of rows of `x` (s, m) by its rows of `y` (s, n): (groups, m, n)."""
    rows, m = x.shape
    n, groups = y.shape[1], ends.shape[0]
    if not rows:
        return zeros((groups, m, n), x.dtype, x.device)
    blocks = _Blocks(ends, rows)
    is_used = F["reshape"](blocks.is_used, (*blocks.is_used.shape, 1))
    parts = F["matmul"](transposed(F["where"](is_used, blocks.of(x), 0)), F["where"](is_used, blocks.of(y), 0))
    flat = F["reshape"](cast(parts, dtypes.accumulator(x.dtype)), (-1, m * n))
    return F["reshape"](cast(F["scatter_rows"](flat, blocks.groups, groups), x.dtype), (groups, m, n))


def _matrices_at(matrices: Tensor, index: Any) -> Any:
    """Return the matrices (..., k, n) at an index; in their order in memory, so that a transposed view is copied once."""
    if matrices.ref.spec.strides[1] < matrices.ref.spec.strides[2]:
        return transposed(F["take"](transposed(matrices), index))
    return F["take"](matrices, index)


def transposed(x: Any) -> Any:
    """Swap the last two axes."""
    return F["permute"](x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
