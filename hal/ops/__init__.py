"""All ops, declared once each. Importing this package declares every family and attaches the methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal.ops import methods
from polyhal.hal.ops.composite import COMPOSITE_METHODS, COMPOSITES
from polyhal.hal.ops.opdef import OPS

from . import (  # isort: skip  # noqa: F401  families in dependency order
    elementwise,
    internal,
    movement,
    creation,
    reduction,
    contraction,
    indexing,
    triangle,
    softmax,
    norm,
    loss,
    attention,
    random,
    optimizer,
    convolution,
    pooling,
)

FUNCTIONS: dict[str, Callable[..., Any]] = {op.name: op.call for op in OPS} | COMPOSITES
"""Every public op by name; a composite replaces the op of the same name that it completes."""

METHODS: dict[str, Callable[..., Any]] = {op.name: op.call for op in OPS if op.inputs and not op.variadic} | {
    name: COMPOSITES[name] for name in COMPOSITE_METHODS
}
for _name in ("where", "slice"):
    METHODS.pop(_name)

methods.attach(FUNCTIONS, METHODS)

__all__ = ["FUNCTIONS", "METHODS", "OPS"]
