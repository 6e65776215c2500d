"""Running sums and products with the Array API's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal.dtypes import DType
from polyhal.hal.layout import normalize_axis
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.creation import full
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.reductions.scan import cumprod, cumsum
from polyhal.hal.ops.tensor_like import TensorLike


@composite(method=False)
def cumulative_sum(
    x: TensorLike, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Any:
    """Sums of the elements up to and including each along `axis`, which a vector need not name. Integers sum in 64 bits.

    With `include_initial` the result begins with 0. Raises ValueError without an axis for other than vectors.

    >>> polyhal.cumulative_sum(polyhal.tensor([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _cumulated("cumulative_sum", cumsum, 0, x, axis, dtype, include_initial)


@composite(method=False)
def cumulative_prod(
    x: TensorLike, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Any:
    """Products of the elements up to and including each along `axis`, which a vector need not name. Integers in 64 bits.

    With `include_initial` the result begins with 1. Raises ValueError without an axis for other than vectors.
    """
    return _cumulated("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


def _cumulated(
    name: str,
    scan: Callable[..., Any],
    first: int,
    x: TensorLike,
    axis: int | None,
    dtype: DType | None,
    include_initial: bool,
) -> Any:
    if axis is None and x.ndim != 1:
        raise ValueError(f"[{name}] shape {tuple(x.shape)} without an axis; expected a vector, or axis=...")
    at = normalize_axis(0 if axis is None else axis, x.ndim)
    out = scan(x, at, dtype=dtype)
    if not include_initial:
        return out
    shape = (*x.shape[:at], 1, *x.shape[at + 1 :])
    return concat([full(shape, first, out.dtype, device=x.device), out], at)
