"""Finite differences and the trapezoidal rule along axes: diff, gradient, trapezoid, cumulative_trapezoid."""

from __future__ import annotations

from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.layout import normalize_axes, normalize_axis
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.layout.regions import concat
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.pointwise.logic import logical_xor
from polyhal.hal.ops.reductions.scan import cumsum
from polyhal.hal.ops.reductions.sums import sum_
from polyhal.hal.ops.tensor_like import TensorLike


def _part(x: Any, axis: int, start: int, length: int) -> Any:
    """`length` consecutive elements along `axis`, counted from the end for a negative start."""
    start += x.shape[axis] if start < 0 else 0
    starts = tuple(start if i == axis else 0 for i in range(x.ndim))
    lengths = tuple(length if i == axis else n for i, n in enumerate(x.shape))
    return slice_(x, starts, lengths, (1,) * x.ndim)


def _neighbours(x: TensorLike, axis: int) -> tuple[Any, Any]:
    """All but the first element along `axis`, and all but the last."""
    count = max(x.shape[axis] - 1, 0)
    first = min(1, x.shape[axis])
    return _part(x, axis, first, count), _part(x, axis, 0, count)


@composite(returns=Returns.COPY)
def diff(
    x: Any, n: int = 1, axis: int = -1, prepend: TensorLike | None = None, append: TensorLike | None = None
) -> Any:
    """The `n`-th difference of neighbours along `axis`, with `prepend` and `append` joined on first.

    Of bools it is whether they differ. Raises ValueError for a negative n.

    >>> polyhal.diff(polyhal.tensor([1, 4, 9])).tolist()
    [3, 5]
    """
    if n < 0:
        raise ValueError(f"[diff] n is {n}; expected 0 or more")
    if not x.ndim:
        raise ValueError("[diff] x has no axes; expected at least one")
    axis = normalize_axis(axis, x.ndim)
    if n == 0:
        return x
    parts = [v for v in (prepend, x, append) if v is not None]
    x = concat(tuple(parts), axis) if len(parts) > 1 else x
    for _ in range(min(n, x.shape[axis])):
        later, earlier = _neighbours(x, axis)
        x = logical_xor(later, earlier) if x.dtype.kind == "bool" else later - earlier
    return x


@composite(method=False)
def gradient(x: Any, *, spacing: Any = 1, axis: Any = None, edge_order: int = 1) -> tuple[Any, ...]:
    """Derivatives along each axis by central differences, of second order inside and of `edge_order` 1 or 2 at both ends.

    `spacing` is one step for all axes, or for each axis a step or a vector of coordinates. Source: Fornberg, Math. Comp. 51
    (1988), 699-706. Raises ValueError where an axis is too short.
    """
    axes = normalize_axes(axis, x.ndim)
    axes = axes if axis is None or isinstance(axis, int) else tuple(normalize_axis(a, x.ndim) for a in axis)
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [1 if spacing is None else spacing] * len(axes)
    if len(steps) != len(axes):
        raise ValueError(f"[gradient] spacing for {len(steps)} axes; expected {len(axes)}")
    if edge_order not in (1, 2):
        raise ValueError(f"[gradient] edge_order is {edge_order}; expected 1 or 2")
    x = x if x.dtype.is_floating_point else x.cast(dtype=dtypes.DEFAULT_FLOAT)
    return tuple(_derivative(x, step, a, edge_order) for step, a in zip(steps, axes, strict=True))


def _derivative(x: Any, step: Any, axis: int, edge_order: int) -> Any:
    n = x.shape[axis]
    if n <= edge_order:
        raise ValueError(f"[gradient] axis {axis} has {n} elements; expected more than edge_order")
    lengths = tuple(-1 if i == axis else 1 for i in range(x.ndim))
    uneven = hasattr(step, "spec") and step.ndim == 1

    def gap(start: int, count: int) -> Any:
        """Steps with first element `start`, shaped to broadcast."""
        if not uneven:
            return step
        steps = step if step.dtype.is_floating_point else step.cast(dtype=x.dtype)
        return reshape(diff(_part(steps, 0, start, count + 1)), lengths)

    def at(start: int, count: int = 1) -> Any:
        return _part(x, axis, start, count)

    pieces = [_edge(at(0), at(1), at(2) if edge_order == 2 else None, gap(0, 1), gap(1, 1) if edge_order == 2 else 0)]
    if n > 2:
        before, after = gap(0, n - 2), gap(1, n - 2)
        a, b, c = at(0, n - 2), at(1, n - 2), at(2, n - 2)
        inside = (
            (before / after * (c - b) + after / before * (b - a)) / (before + after) if uneven else (c - a) / (step * 2)
        )
        pieces.append(inside)
    last = _edge(
        at(n - 1),
        at(n - 2),
        at(n - 3) if edge_order == 2 else None,
        gap(n - 2, 1),
        gap(n - 3, 1) if edge_order == 2 else 0,
    )
    return concat((*pieces, -last), axis)


def _edge(a: TensorLike, b: TensorLike, c: Any, first: int, second: int) -> Any:
    """The one-sided derivative at `a`, whose neighbours inwards are `b` and perhaps `c`."""
    if c is None:
        return (b - a) / first
    both = first + second
    return -(first + both) / (first * both) * a + both / (first * second) * b - first / (second * both) * c


def _trapezoids(y: Any, x: Any, dx: Any, axis: int) -> Any:
    """The area under each pair of neighbours."""
    if not hasattr(dx, "spec") and isinstance(dx, bool):
        dx = int(dx)
    later, earlier = _neighbours(y, axis)
    if x is not None:
        if x.ndim == 1 and y.ndim > 1:
            dx = reshape(diff(x), tuple(-1 if i == axis else 1 for i in range(y.ndim)))
        else:
            dx = diff(x, axis=axis - y.ndim)
        return (later + earlier) * dx / 2
    return (later + earlier) * (dx / 2)


@composite("trapz")
def trapezoid(
    y: TensorLike, x: TensorLike | None = None, *, dx: TensorLike | float | None = None, axis: int = -1
) -> Any:
    """Integral of `y` along `axis` by the trapezoidal rule, over coordinates `x` or steps of `dx` (1 by default)."""
    axis = normalize_axis(axis, y.ndim)
    return sum_(_trapezoids(y, x, 1 if dx is None else dx, axis), axis)


@composite()
def cumulative_trapezoid(
    y: TensorLike, x: TensorLike | None = None, *, dx: TensorLike | float | None = None, axis: int = -1
) -> Any:
    """Integrals up to each element but the first; see `trapezoid`."""
    axis = normalize_axis(axis, y.ndim)
    return cumsum(_trapezoids(y, x, 1 if dx is None else dx, axis), axis)
