"""All ops, each declared once. Importing the package imports every module in it, which declares the ops, and attaches
the tensor methods.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from polyhal.hal.ops import methods
from polyhal.hal.ops.composite import COMPOSITE_METHODS, COMPOSITES
from polyhal.hal.ops.opdef import OPS

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

FUNCTIONS: dict[str, Callable[..., Any]] = {op.name: op.call for op in OPS} | COMPOSITES
"""Every op and composite by name. A composite replaces the op of the same name, which it extends."""


def _is_public(name: str) -> bool:
    return name in COMPOSITES or (OPS[name].public and not name.endswith("_grad"))


PUBLIC: dict[str, Callable[..., Any]] = {name: f for name, f in FUNCTIONS.items() if _is_public(name)}
"""The functions that users call by name."""

METHODS: dict[str, Callable[..., Any]] = {
    name: f
    for name, f in PUBLIC.items()
    if name in COMPOSITE_METHODS
    or (name not in COMPOSITES and OPS[name].schema.inputs and not OPS[name].schema.variadic and name != "where")
}

methods.attach(FUNCTIONS, METHODS)

__all__ = ["FUNCTIONS", "METHODS", "OPS", "PUBLIC"]
