"""Sums, extremes, moments and norms along axes, and scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import OPS, F, UnsupportedArgumentsError, axes_of, cast, lifted, zeros

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType
    from polyhal.tensor import Tensor


def _summed(x: Tensor, dtype: DType | None) -> Any:
    """Cast the input of a sum or product: integers to int64 unless `dtype` is set."""
    return cast(x, dtype or (None if x.dtype.kind in ("float", "complex") else dtypes.int64))


@aten("sum", "sum.dim_IntList")
def sum_(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: DType | None = None) -> Any:
    x = _summed(x, dtype)
    return cast(F["sum"](x, axes_of(x, dim), keepdim), dtype) if x.shape else F["copy"](x)


@aten("mean", "mean.dim")
def mean(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: DType | None = None) -> Any:
    x = cast(x, dtype)
    if x.dtype.kind not in ("float", "complex"):
        raise RuntimeError(f"mean(): input dtype must be either a floating point or complex dtype. Got: {x.dtype.name}")
    return F["mean"](x, axes_of(x, dim), keepdim) if x.shape else F["copy"](x)


@aten("prod", "prod.dim_int")
def prod(x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: DType | None = None) -> Any:
    x = _summed(x, dtype)
    return cast(F["prod"](x, axes_of(x, dim), keepdim), dtype) if x.shape else F["copy"](x)


def _not_empty(name: str, x: Any, dim: Sequence[int] | None) -> None:
    """Raise IndexError, as PyTorch does, for an extremum along an explicit axis without elements."""
    if not x.size and dim is not None:
        for axis in dim if isinstance(dim, (list, tuple)) else [dim]:
            if x.shape and -x.ndim <= axis < x.ndim and not x.shape[axis]:
                raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")


@aten("amax")
def amax(x: Tensor, dim: Any = (), keepdim: bool = False) -> Any:
    _not_empty("amax", x, dim)
    return F["max"](x, axes_of(x, dim), keepdim) if x.shape else F["copy"](x)


@aten("amin")
def amin(x: Tensor, dim: Any = (), keepdim: bool = False) -> Any:
    _not_empty("amin", x, dim)
    return F["min"](x, axes_of(x, dim), keepdim) if x.shape else F["copy"](x)


@aten("max")
def max_(x: Tensor) -> Any:
    return amax(x)


@aten("min")
def min_(x: Tensor) -> Any:
    return amin(x)


def check_elements(op: str, x: Tensor, dim: int | None) -> None:
    """Raise IndexError, as PyTorch does, for the index of an extremum of no elements."""
    if dim is None and not x.size:
        raise IndexError(
            f"{op}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim."
        )
    if dim is not None and x.shape and not x.shape[dim]:
        raise IndexError(f"{op}(): Expected reduction dim {dim % x.ndim} to have non-zero size.")


@aten("max.dim")
def max_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    if not x.shape:
        return F["copy"](x), zeros((), dtypes.int64, x.device)
    check_elements("max", x, dim)
    return F["max"](x, dim, keepdim), F["argmax"](x, dim, keepdim)


@aten("min.dim")
def min_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    if not x.shape:
        return F["copy"](x), zeros((), dtypes.int64, x.device)
    check_elements("min", x, dim)
    return F["min"](x, dim, keepdim), F["argmin"](x, dim, keepdim)


@aten("argmax")
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    check_elements("argmax", x, dim)
    return F["argmax"](x, dim if x.shape else None, keepdim)


@aten("argmin")
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    check_elements("argmin", x, dim)
    return F["argmin"](x, dim if x.shape else None, keepdim)


def _truth(name: str, x: Tensor, dim: int | Sequence[int] | None, keepdim: bool) -> Any:
    out = F[name](x, axes_of(x, dim), keepdim)
    return cast(out, dtypes.uint8) if x.dtype is dtypes.uint8 else out


@aten("any", "any.dim", "any.dims")
def any_(x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Any:
    return _truth("any", x, dim, keepdim)


@aten("all", "all.dim", "all.dims")
def all_(x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Any:
    return _truth("all", x, dim, keepdim)


@aten("var.correction")
def var(x: Tensor, dim: Any = None, correction: float | None = 1, keepdim: bool = False) -> Any:
    if not x.size:
        raise UnsupportedArgumentsError
    return F["var"](x, axes_of(x, dim), keepdims=keepdim, correction=1 if correction is None else correction)


@aten("std.correction")
def std(x: Tensor, dim: int | Sequence[int] | None = None, correction: float | None = 1, keepdim: bool = False) -> Any:
    return F["sqrt"](var(x, dim, correction, keepdim))


@aten("var_mean.correction")
def var_mean(
    x: Tensor, dim: int | Sequence[int] | None = None, correction: float | None = 1, keepdim: bool = False
) -> Any:
    return var(x, dim, correction, keepdim), F["mean"](x, axes_of(x, dim), keepdim)


@aten("std_mean.correction")
def std_mean(
    x: Tensor, dim: int | Sequence[int] | None = None, correction: float | None = 1, keepdim: bool = False
) -> Any:
    return std(x, dim, correction, keepdim), F["mean"](x, axes_of(x, dim), keepdim)


@aten("linalg_vector_norm")
def vector_norm(
    x: Tensor, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: DType | None = None
) -> Any:
    x, axes = cast(x, dtype), axes_of(x, dim)
    if order == 2 and axes is None and not keepdim and x.dtype is dtypes.float32 and x.ref.spec.is_contiguous:
        # This op is not fused with others, so that recorded steps add in the same order. Clipping divides by the result.
        return F["reshape"](OPS["norms"].call([x]), ())
    return F["vector_norm"](x, axes, keepdim, float(order))


@aten("cumsum")
def cumsum(x: Tensor, dim: int, dtype: DType | None = None) -> Any:
    x = _summed(x, dtype)
    return cast(F["cumsum"](x, dim), dtype) if x.shape else F["copy"](x)


@aten("cumprod")
def cumprod(x: Tensor, dim: int, dtype: DType | None = None) -> Any:
    x = _summed(x, dtype)
    return cast(F["cumprod"](x, dim), dtype) if x.shape else F["copy"](x)


@aten("cummax")
@lifted
def cummax(x: Tensor, dim: int) -> Any:
    return tuple(F["cummax"](x, dim))


@aten("cummin")
@lifted
def cummin(x: Tensor, dim: int) -> Any:
    return tuple(F["cummin"](x, dim))


@aten("logcumsumexp", "_logcumsumexp")
@lifted
def logcumsumexp(x: Tensor, dim: int) -> Any:
    return F["logcumsumexp"](x, dim)


@aten("aminmax")
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


@aten("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(x: Tensor, dim: int | Sequence[int] | None = None) -> Any:
    return F["count_nonzero"](x, axes_of(x, dim))


@aten("nansum")
def nansum(x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, dtype: DType | None = None) -> Any:
    return cast(F["nansum"](_summed(x, dtype), axes_of(x, dim), keepdim), dtype)


@aten("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")
def norm(x: Tensor, p: float | None, dim: Sequence[int], keepdim: bool = False, dtype: DType | None = None) -> Any:
    return vector_norm(x, 2.0 if p is None else p, dim, keepdim, dtype)


@aten("norm.Scalar", "norm.ScalarOpt_dtype")
def norm_of_all(x: Tensor, p: float | None = 2, dtype: DType | None = None) -> Any:
    return vector_norm(x, 2.0 if p is None else p, None, False, dtype)


@aten("renorm")
def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Any:
    if x.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {x.ndim} dimensions")
    return F["renorm"](x, p, dim, maxnorm)


@aten("logsumexp")
def logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Any:
    return F["logsumexp"](x, axes_of(x, dim), keepdim)


@aten("equal")
def equal(x: Tensor, y: Tensor) -> bool:
    """Return whether shapes and all elements are equal, as a Python bool."""
    return x.shape == y.shape and bool(F["all"](F["equal"](x, y)).item())
