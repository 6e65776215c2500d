"""Additions and multiplications of a call by its op's cost rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OpDef


def call_flops(op: OpDef, operands: Sequence[object], results: Sequence[Spec], params: Sequence[Any]) -> int:
    """Return the additions and multiplications of a call; 0 for an op without a cost rule. Only specs count as operands."""
    specs = tuple([x if isinstance(x, Spec) else None for x in operands])
    if op.flops is None or not any(specs):
        return 0
    return int(op.flops(specs, tuple(results), op.bind(tuple(params))))
