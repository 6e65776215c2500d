"""Sorting, order statistics, search in sorted sequences, distinct elements, and counts by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, lifted, zeros
from polyhal.torch.table.reductions import check_elements

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("sort.stable")
def sort_stable(x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    """Return sorted elements and their indices; the order is always stable."""
    return sort(x, dim, descending)


@aten("sort")
@lifted
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return F["sort_pairs"](x, dim, descending)


@aten("argsort.stable")
def argsort_stable(x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    return sort(x, dim, descending)[1]


@aten("topk")
@lifted
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, in_order: bool = True) -> Any:
    return F["topk"](x, k, dim, largest, in_order)


@aten("kthvalue")
@lifted
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    check_elements("kthvalue", x, dim)
    return F["kthvalue"](x, k, dim, keepdim)


@aten("mode")
@lifted
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    check_elements("mode", x, dim)
    return F["mode"](x, dim, keepdim)


@aten("median")
def median(x: Tensor) -> Any:
    if not x.size and x.dtype.is_floating_point:
        return F["full"]((), float("nan"), x.dtype, device=x.device)
    return F["median"](x)


@aten("median.dim")
@lifted
def median_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    check_elements("median", x, dim)
    return F["median"](x, dim, keepdim)


@aten("nanmedian")
def nanmedian(x: Tensor) -> Any:
    if not x.size and x.dtype.is_floating_point:
        return median(x)
    return F["nanmedian"](x)


@aten("nanmedian.dim")
@lifted
def nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    check_elements("median", x, dim)
    return F["nanmedian"](x, dim, keepdim)


def _three(results: Sequence[Tensor], return_inverse: bool, return_counts: bool) -> Any:
    """Return distinct elements, the index of each element among them, and counts; results not requested are empty."""
    values, *others = results if isinstance(results, tuple) else (results,)
    empty = zeros((0,), dtypes.int64, values.device)
    inverse = others.pop(0) if return_inverse else empty
    return values, inverse, others.pop(0) if return_counts else empty


@aten("_unique2")
def unique(x: Tensor, in_order: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return _three(F["unique"](x, True, return_inverse, return_counts), return_inverse, return_counts)


@aten("unique_dim")
def unique_dim(
    x: Tensor, dim: int, in_order: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    return _three(F["unique"](x, True, return_inverse, return_counts, dim), return_inverse, return_counts)


@aten("unique_consecutive", "unique_dim_consecutive")
def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    return _three(F["unique_consecutive"](x, return_inverse, return_counts, dim), return_inverse, return_counts)


@aten("_histogramdd_bin_edges")
def histogramdd_edges(
    x: Tensor,
    bins: Tensor,
    *,
    range: Any = None,  # noqa: A002
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    return list(F["histogramdd"](x, bins, range=range, weight=weight, density=density)[1])


@aten("_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors")
def histogramdd(
    x: Tensor,
    bins: Tensor,
    *,
    range: Any = None,  # noqa: A002
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    return F["histogramdd"](x, bins, range=range, weight=weight, density=density)[0]
