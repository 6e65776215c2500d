"""Operands of the ops `rotary` and `rotary_store`."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Arguments
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined

STRIDES = ("b0", "b1", "row", "column")
"""Axes of queries, keys and values, in order."""


def unrotatable(x: Spec, out: Spec) -> Declined | None:
    """Return the reason why the kernel of `rotary` cannot rotate x; None if it can."""
    if x.ndim > len(STRIDES) or not out.is_contiguous or x.size >= 1 << 31:
        return Declined(f"more than {len(STRIDES)} axes, 2^31 elements or more, or a result that is not contiguous")
    return None


def rotated_strides(x: Spec, cosines: Spec, sines: Spec) -> dict[str, dict[str, int]]:
    """Return the strides of x and of its tables by operand and axis; 0 for axes that x does not have."""
    pairs = (*x.shape[:-1], x.shape[-1] // 2)
    tables = {"cosines": cosines, "sines": sines}
    strides = {"x": x.strides, **{n: broadcast_strides(s.shape, s.strides, pairs) for n, s in tables.items()}}
    missing = (0,) * (len(STRIDES) - x.ndim)
    return {name: dict(zip(STRIDES, (*missing, *own), strict=True)) for name, own in strides.items()}


def rotated_sizes(x: Spec) -> Arguments:
    """Return the sizes that the kernel of `rotary` has as arguments."""
    return {
        "size": x.size // 2,
        "half_": x.shape[-1] // 2,
        "rows": x.shape[-2],
        "b1": x.shape[-3] if x.ndim > 2 else 1,
    }


def several_dtypes(q: Spec, k: Spec, v: Spec, outputs: tuple[Spec, ...]) -> Declined | None:
    """Return a reason if queries, keys and values, or both caches, differ in dtype."""
    if len({s.dtype for s in (q, k, v)}) > 1 or len({s.dtype for s in outputs[:2]}) > 1:
        return Declined("queries, keys and values of several dtypes")
    return None


def stored_pairs(q: Spec, k: Spec) -> int:
    """Return the number of pairs of features of queries, keys and values."""
    batch, heads, rows, width = q.shape
    return batch * (heads + 2 * k.shape[1]) * rows * (width // 2)


def stored_sizes(q: Spec, k: Spec, cached: Spec, cosines: Spec) -> Arguments:
    """Return the sizes that the kernel of `rotary_store` has as arguments."""
    return {
        "size": stored_pairs(q, k),
        "heads": q.shape[1],
        "cached": k.shape[1],
        "rows": q.shape[2],
        "width": q.shape[3],
        "half_": cosines.shape[-1],
        "capacity": cached.shape[2],
    }
