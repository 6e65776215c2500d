"""Distinct elements with their positions, numbers and counts, as named tuples: the Array API's functions of sets.

Each NaN counts as another. The length of the result is read from the device, so none can be captured.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import is_complex
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.indexing.along_axis import take_along_axis
from polyhal.hal.ops.indexing.rows import take
from polyhal.hal.ops.layout.creation import full
from polyhal.hal.ops.layout.regions import stack
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.reductions.sort import argsort, sort_pairs
from polyhal.hal.ops.reductions.unique import run_lengths, runs
from polyhal.hal.ops.tensor_like import TensorLike


class UniqueAll(NamedTuple):
    """Distinct elements in order, where each occurs first, the number of each element among them, how often each occurs."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct elements in order, and how often each occurs."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct elements in order, and the number of each element among them."""

    values: Any
    inverse_indices: Any


@composite(method=False)
def unique_all(x: TensorLike) -> UniqueAll:
    """The distinct elements in order, where each occurs first, the number of each element among them, and counts.

    Positions and numbers are int64, `inverse_indices` has the shape of `x`. Complex numbers are in the order of their real
    parts, equal ones in the order of their imaginary parts. Raises CaptureError in a captured step.

    >>> polyhal.unique_all(polyhal.tensor([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    return _all("unique_all", x)


@composite(method=False)
def unique_counts(x: TensorLike) -> UniqueCounts:
    """The distinct elements in order, and how often each occurs (int64). Raises CaptureError in a captured step."""
    found = _all("unique_counts", x)
    return UniqueCounts(found.values, found.counts)


@composite(method=False)
def unique_inverse(x: TensorLike) -> UniqueInverse:
    """The distinct elements in order, and the number of each element among them (int64), in the shape of `x`.

    Raises CaptureError in a captured step.
    """
    found = _all("unique_inverse", x)
    return UniqueInverse(found.values, found.inverse_indices)


@composite(method=False)
def unique_values(x: TensorLike) -> Any:
    """The distinct elements in order. Raises CaptureError in a captured step."""
    return _all("unique_values", x).values


def _all(op: str, x: Any) -> UniqueAll:
    dispatch.require_execution(
        op, "the number of distinct elements is only being recorded", fix="call it outside the captured step"
    )
    if not x.size:
        nothing = full((0,), 0, dtypes.int64, device=x.device)
        return UniqueAll(reshape(x, (0,)), nothing, reshape(nothing, x.shape), nothing)
    flat = reshape(x, (-1,))
    ordered, order, keys = _in_order(flat)
    run, starts, _ = runs(keys)
    inverse = reshape(take_along_axis(run, argsort(order, 0), 0), x.shape)
    return UniqueAll(take(ordered, starts, 0), take(order, starts, 0), inverse, run_lengths(starts, x.size))


def _in_order(flat: Any) -> tuple[Any, Any, Any]:
    """Elements in a stable order, their positions, and rows (n, 1 or 2) that are equal if the elements are."""
    if not is_complex(flat):
        values, order = sort_pairs(flat, 0, False)
        return values, order, reshape(values, (-1, 1))
    re, im = flat.real + 0.0, flat.imag + 0.0  # sorts may put -0.0 before 0.0
    order = argsort(im, 0)
    order = take(order, argsort(take(re, order, 0), 0), 0)
    return take(flat, order, 0), order, stack([take(re, order, 0), take(im, order, 0)], 1)
