"""All ops, declared once each. Importing this package declares every family and attaches the methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal.ops import methods
from polyhal.hal.ops.composite import COMPOSITE_METHODS, COMPOSITES
from polyhal.hal.ops.indexing import gather, store_rows  # noqa: F401
from polyhal.hal.ops.layout import (  # noqa: F401
    creation,
    movement,
    transfer,
    triangle,
    window,
)
from polyhal.hal.ops.linear_algebra import fused_matmul, linear, matmul  # noqa: F401
from polyhal.hal.ops.nn import (  # noqa: F401
    attention,
    batch_norm,
    batch_norm_relu,
    convolution,
    group_norm,
    loss,
    norm,
    pooling,
    softmax,
)
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.optim import optimizer  # noqa: F401
from polyhal.hal.ops.pointwise import (  # noqa: F401
    activation,
    arithmetic,
    cast,
    elementwise,
    exponential,
    fused_elementwise,
    logic,
    rounding,
    selection,
    trigonometry,
)
from polyhal.hal.ops.random import philox  # noqa: F401
from polyhal.hal.ops.reductions import reduce, scan, sort  # noqa: F401

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
