"""Calls of a run with few shapes, for runtimes that compile a program per shape, which takes seconds.

Pointwise ops run on the values of all their samples as vectors of one length, reductions on matrices of one shape.
Their decompositions therefore call members on equal shapes, so that each program is compiled once. Other ops keep one
sample, and one more of special values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.ops.traits import Trait
from polyhal.hal.system.reference.op_calls import OpCall

LENGTH = 64
"""Elements of every operand of a pointwise op."""
ROWS, COLUMNS = 4, 16
"""Shape of every operand of a reduction, over its last axis."""
_LARGE = 128
"""Maximum number of elements of a preferred sample."""


def few(calls: Sequence[OpCall]) -> list[OpCall]:
    """Reduce the calls of one op in one dtype to fewer calls, with shapes shared by other ops."""
    empty = [c for c in calls if not c.computes]  # they do not compile programs
    computing = [c for c in calls if c.computes]
    if not computing:
        return empty
    op = computing[0].op
    if Trait.POINTWISE in op.traits and all(_is_pointwise(c) for c in computing):
        return empty + [_joined(group, (LENGTH,)) for group in _groups(computing)]
    if op.family == "reduction" and "axis" in op.schema.params and len(op.schema.inputs) == 1:
        # Only samples without repeated values: an extremum of repeated values is not differentiable.
        large = [replace(c, params={**c.params, "axis": -1}) for c in computing if c.elements >= ROWS * COLUMNS]
        if large:
            return empty + [_joined(group, (ROWS, COLUMNS)) for group in _groups(large)]
    plain, special = [c for c in computing if not c.sample.special], [c for c in computing if c.sample.special]
    chosen = max(plain, key=_preference, default=None)
    return empty + [c for c in (chosen, next(iter(special), None)) if c is not None]


def _is_pointwise(call: OpCall) -> bool:
    """Return whether all operands are numbers, or arrays that can be resized."""
    return all(x is None or isinstance(x, (np.ndarray, bool, int, float)) for x in call.values)


def _preference(call: OpCall) -> tuple[bool, bool, int]:
    size = call.elements
    return call.sample.differentiable, size <= _LARGE, size if size <= _LARGE else -size


def _groups(calls: Sequence[OpCall]) -> list[list[OpCall]]:
    """Group the calls that can be joined: equal parameters, equal numbers at equal positions, and equally special samples."""
    groups: dict[Any, list[OpCall]] = {}
    for call in calls:
        numbers = tuple(None if isinstance(x, np.ndarray) else (type(x), repr(x)) for x in call.values)
        kind = call.sample.special, call.sample.differentiable
        groups.setdefault((repr(dispatch.freeze(tuple(call.params.items()))), numbers, kind), []).append(call)
    return list(groups.values())


def _joined(calls: Sequence[OpCall], shape: tuple[int, ...]) -> OpCall:
    """Join several calls to one on all their values, repeated or cut to a shape."""
    rows = [_broadcast(c.values) for c in calls]
    values = tuple(
        np.resize(np.concatenate([r[i] for r in rows]), shape) if isinstance(x, np.ndarray) else x
        for i, x in enumerate(calls[0].values)
    )
    return replace(calls[0], values=values)


def _broadcast(values: Sequence[Any]) -> list[Any]:
    """Return arrays as vectors of one length, and other values unchanged."""
    shape = np.broadcast_shapes(*[x.shape for x in values if isinstance(x, np.ndarray)])
    return [np.broadcast_to(x, shape).reshape(-1) if isinstance(x, np.ndarray) else x for x in values]
