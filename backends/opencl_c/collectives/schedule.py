"""Exchanges of each collective: the ranges that a participant sends and receives."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.opencl_c.lowering.collective.exchange import NOTHING, VECTOR, Exchange, Range
from polyhal.hal.collectives.collective import Collective, Kind, Reduction
from polyhal.hal.dtypes import DType

_ONE_SHOT_BYTES = 1 << 20
"""Maximum bytes that a participant sends additionally to save a step of an all-reduce, which takes 2 us on two H200s."""
_OWN_WORK = 0.25
"""Time to reduce a byte of all wholes instead of a part of them, relative to sending it.

Between two devices, two steps are faster above 4 MiB.
"""
_OPERATIONS = {Reduction.SUM: "sum", Reduction.MAX: "largest", Reduction.MIN: "smallest"}


def exchange_of(collective: Collective, me: int, dtype: DType) -> Exchange:
    """Return the exchange of participant `me`. Parts without a prescribed start begin at multiples of 16 bytes."""
    members, total, root = range(collective.size), collective.total, collective.root
    counts = collective.counts
    parts = tuple(Range(s, n) for s, n in zip(collective.starts, counts, strict=True))
    operation = _OPERATIONS[collective.reduction]
    if dtype.kind == "bool" and operation == "sum":
        operation = "largest"  # NumPy's sum of booleans is a logical or
    nothing = tuple(NOTHING for _ in members)

    def only_root(size: int) -> tuple[Range, ...]:
        return tuple(Range(0, size if j == root else 0) for j in members)

    match collective.kind:
        case Kind.ALL_REDUCE if _in_one_step(collective, dtype):
            return Exchange((Range(0, total),) * collective.size, nothing, total, operation, gathers=False)
        case Kind.ALL_REDUCE:
            lanes = VECTOR // dtype.itemsize
            share = ceil_div(ceil_div(total, collective.size), lanes) * lanes
            even = tuple(Range(min(i * share, total), max(0, min(share, total - i * share))) for i in members)
            return Exchange(even, even, share, operation, result_start=even[me].start)
        case Kind.REDUCE:
            return Exchange(only_root(total), nothing, total, operation, gathers=False)
        case Kind.REDUCE_SCATTER:
            return Exchange(parts, nothing, max(counts), operation, gathers=False)
        case Kind.BROADCAST:
            whole = tuple(Range(0, total) for _ in members)
            return Exchange(whole if me == root else nothing, only_root(total), total)
        case Kind.SCATTER:
            return Exchange(parts if me == root else nothing, only_root(counts[me]), max(counts))
        case Kind.GATHER:
            return Exchange(only_root(counts[me]), parts if me == root else nothing, max(counts))
        case Kind.ALL_GATHER:
            return Exchange(tuple(Range(0, counts[me]) for _ in members), parts, max(counts))


def _in_one_step(collective: Collective, dtype: DType) -> bool:
    """Return whether every participant of an all-reduce sends its whole to all others, and reduces all wholes itself.

    Otherwise it reduces its part, and sends that in a second step.
    """
    n = collective.size
    additional = (n - 1) * (n - 2) / n + _OWN_WORK
    return additional * collective.total * dtype.itemsize <= _ONE_SHOT_BYTES
