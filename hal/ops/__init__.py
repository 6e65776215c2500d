"""All ops, declared once each. Importing this package declares every family and attaches the methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal.ops import methods
from polyhal.hal.ops.composite import COMPOSITE_METHODS, COMPOSITES
from polyhal.hal.ops.opdef import OPS

from . import (  # isort: skip  # noqa: F401  families in dependency order
    elementwise,
    logic,
    selection,
    arithmetic,
    rounding,
    exponential,
    trigonometry,
    activation,
    cast,
    movement,
    window,
    creation,
    reduction,
    fused,
    contraction,
    linear,
    fused_matmul,
    indexing,
    store_rows,
    transfer,
    scan,
    sorting,
    triangle,
    softmax,
    norm,
    batch_norm,
    batch_norm_relu,
    group_norm,
    loss,
    attention,
    random,
    optimizer,
    convolution,
    pooling,
)

FUNCTIONS: dict[str, Callable[..., Any]] = {op.name: op.call for op in OPS} | COMPOSITES
"""Every op by name; a composite replaces the op of the same name that it completes."""


def _is_public(name: str) -> bool:
    return name in COMPOSITES or (OPS[name].public and not name.endswith("_grad"))


PUBLIC: dict[str, Callable[..., Any]] = {name: f for name, f in FUNCTIONS.items() if _is_public(name)}
"""The ops that users call by name."""

METHODS: dict[str, Callable[..., Any]] = {
    name: f
    for name, f in PUBLIC.items()
    if name in COMPOSITE_METHODS
    or (name not in COMPOSITES and OPS[name].inputs and not OPS[name].variadic and name != "where")
}

methods.attach(FUNCTIONS, METHODS)

__all__ = ["FUNCTIONS", "METHODS", "OPS", "PUBLIC"]
