"""Products and statistics of complex numbers over axes."""

from __future__ import annotations

from typing import Any

from polyhal.hal.layout import normalize_axes
from polyhal.hal.ops.complex_numbers.rules import complex_rule, join
from polyhal.hal.ops.layout.regions import pad
from polyhal.hal.ops.layout.views import permute, reshape
from polyhal.hal.ops.pointwise.arithmetic import abs_, multiply
from polyhal.hal.ops.pointwise.logic import not_equal
from polyhal.hal.ops.reductions.extrema import all_, any_
from polyhal.hal.ops.reductions.nan_sums import count_nonzero
from polyhal.hal.ops.reductions.norms import vector_norm
from polyhal.hal.ops.reductions.reduction import reduced_shape
from polyhal.hal.ops.reductions.scan import cumprod, prefix_scan
from polyhal.hal.ops.reductions.spread import deviation, variance
from polyhal.hal.ops.reductions.sums import prod
from polyhal.hal.ops.tensor_like import TensorLike


@complex_rule(vector_norm)
def _vector_norm(x: TensorLike, **params: Any) -> Any:
    return vector_norm(abs_(x), **params)


@complex_rule(variance)
def _variance(x: TensorLike, **params: Any) -> Any:
    """The mean squared distance from the mean: those of both parts add up."""
    return variance(x.real, **params) + variance(x.imag, **params)


@complex_rule(deviation)
def _deviation(x: TensorLike, *, correction: int, **params: Any) -> Any:
    """The norm of the deviations of both parts."""
    parts = (deviation(part, correction=correction, **params) for part in (x.real, x.imag))
    return abs_(join(*parts))


@complex_rule(any_)
def _any(x: TensorLike, **params: Any) -> Any:
    return any_(not_equal(x, 0), **params)


@complex_rule(all_)
def _all(x: TensorLike, **params: Any) -> Any:
    return all_(not_equal(x, 0), **params)


@complex_rule(count_nonzero)
def _count_nonzero(x: TensorLike, **params: Any) -> Any:
    return count_nonzero(not_equal(x, 0), **params)


@complex_rule(prod)
def _prod(x: TensorLike, *, axis: int | None, keepdims: bool) -> Any:
    """Halves of the elements are multiplied with each other until one is left."""
    axes = normalize_axes(axis, x.ndim)
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    shape = reduced_shape(x.shape, axes, keepdims)
    flat = reshape(permute(x, (*kept, *axes)), (*(x.shape[a] for a in kept), _count(x.shape, axes)))
    if not flat.shape[-1]:
        return _padded(flat, 1)[..., 0].reshape(shape)
    while flat.shape[-1] > 1:
        flat = _padded(flat, flat.shape[-1] + flat.shape[-1] % 2)
        half = flat.shape[-1] // 2
        flat = flat[..., :half] * flat[..., half:]
    return reshape(flat, shape)


@complex_rule(cumprod)
def _cumprod(x: TensorLike, *, axis: int) -> Any:
    return prefix_scan(multiply)(x, axis=axis)


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    count = 1
    for axis in axes:
        count *= shape[axis]
    return count


def _padded(x: TensorLike, length: int) -> Any:
    """`x` with ones after the last elements."""
    widths = (*(((0, 0),) * (x.ndim - 1)), (0, length - x.shape[-1]))
    return pad(x, widths, 1)
