"""`reduce_rows`: rows of a table combined with rows of another by number, in each of PyTorch's ways."""

from __future__ import annotations

from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType, accumulator
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.ops.indexing.add_rows import add_rows
from polyhal.hal.ops.indexing.row_updates import maximum_rows, multiply_rows, replace_rows
from polyhal.hal.ops.indexing.rows import scatter_rows
from polyhal.hal.ops.layout.creation import full
from polyhal.hal.ops.pointwise.arithmetic import negative
from polyhal.hal.ops.pointwise.logic import bitwise_invert, less, not_equal
from polyhal.hal.ops.pointwise.rounding import floor_divide
from polyhal.hal.ops.pointwise.selection import maximum, where
from polyhal.hal.ops.tensor_like import TensorLike

NEUTRAL: dict[str, float] = {"sum": 0, "mean": 0, "prod": 1, "amax": float("-inf"), "amin": float("inf")}
"""The initial value of each reduction if the table's own elements do not count."""


def reduce_rows(name: str, x: Any, index: Any, src: Any, reduce: str, include_self: bool = True) -> Any:
    """`x` (rows, width) with each row combined with all rows `src[i]` whose `index[i]` names it; negative numbers are skipped.

    `reduce` is "replace", "sum", "mean", "prod", "amax" or "amin". Without `include_self`, rows that are named lose their
    earlier elements. Integers wrap, and their means round down. Raises ValueError for another reduction, in the name of
    `name`.
    """
    if reduce != "replace" and reduce not in NEUTRAL:
        raise ValueError(message(name, f"reduce is {reduce!r}", expected=" or ".join(map(repr, NEUTRAL))))
    src = src if src.dtype is x.dtype else src.cast(dtype=x.dtype)
    if reduce == "replace":
        return replace_rows(x, index, src)
    if x.dtype.is_complex and reduce == "sum" and include_self:
        return add_rows(x, index, src)
    kind = computed_in(x.dtype, reduce)
    if kind is not x.dtype:
        out = reduce_rows(name, x.cast(dtype=kind), index, src.cast(dtype=kind), reduce, include_self)
        return not_equal(out, 0) if x.dtype.kind == "bool" else out.cast(dtype=x.dtype)
    count = None
    if not include_self or reduce == "mean":
        ones = full((index.shape[0], 1), 1, dtypes.int32, device=x.device)
        count = scatter_rows(ones, index, x.shape[0])
        x = x if include_self else where(less(0, count), _neutral(reduce, kind), x)
    return _combined(x, index, src, reduce, count, include_self)


def _combined(x: Any, index: TensorLike, src: TensorLike, reduce: str, count: Any, include_self: bool) -> Any:
    if reduce == "prod":
        return multiply_rows(x, index, src)
    if reduce == "amax":
        return maximum_rows(x, index, src)
    if reduce == "amin":
        mirror = negative if x.dtype.kind == "float" else bitwise_invert
        return mirror(maximum_rows(mirror(x), index, mirror(src)))
    total = add_rows(x, index, src)
    if reduce == "sum":
        return total
    divisor = (count + 1 if include_self else maximum(count, 1)).cast(dtype=x.dtype)
    return total / divisor if x.dtype.kind == "float" else floor_divide(total, divisor)


def computed_in(dtype: DType, reduce: str) -> DType:
    """Return the dtype in which rows are combined: it has kernels for sums by index, and holds the counts of a mean.

    Wrapping commutes with sums and products.
    """
    if dtype.is_complex:
        raise UnsupportedDTypeError(message("reduce_rows", f"got {dtype.name}", expected="a real dtype, or sums"))
    if dtype.kind == "float" and reduce == "mean":
        return accumulator(dtype)
    if dtype.kind == "float" or dtype in (dtypes.int32, dtypes.int64):
        return dtype
    return dtypes.int32 if dtype.itemsize < 4 else dtypes.int64


def _neutral(reduce: str, dtype: DType) -> float | int:
    value = NEUTRAL[reduce]
    if dtype.kind == "float" or reduce not in ("amax", "amin"):
        return value
    largest = (1 << dtype.bits - 1) - 1
    return largest if reduce == "amin" else -largest - 1
