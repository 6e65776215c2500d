"""All ops, each declared once. Importing the package imports every module in it, which declares the ops, and attaches
the tensor methods.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from polyhal.hal.ops import methods
from polyhal.hal.ops.aliases import ALIASES
from polyhal.hal.ops.composite import COMPOSITE_METHODS, COMPOSITES, EXTENSIONS
from polyhal.hal.ops.docstrings import docstring
from polyhal.hal.ops.opdef import OPS

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

for _op in OPS:
    _op.call.__doc__ = docstring(_op)

BUILT_IN: frozenset[str] = frozenset(OPS.names())
"""The names of our own ops. Those of other packages are declared later."""

FUNCTIONS: dict[str, Callable[..., Any]] = {op.name: op.call for op in OPS} | COMPOSITES
"""Every op and composite by name. A composite replaces the op of the same name, which it extends."""


def _is_public(name: str) -> bool:
    return name in COMPOSITES or (OPS[name].public and not name.endswith("_grad"))


def _is_method(name: str) -> bool:
    if name in COMPOSITES:
        return name in COMPOSITE_METHODS
    schema = OPS[name].schema
    return bool(schema.inputs) and not schema.variadic and name != "where"


PUBLIC: dict[str, Callable[..., Any]] = {name: f for name, f in FUNCTIONS.items() if _is_public(name)} | EXTENSIONS
"""The functions that users call by name."""

PUBLIC |= {alias: PUBLIC[name] for alias, name in ALIASES.items()}

METHODS: dict[str, Callable[..., Any]] = {name: f for name, f in PUBLIC.items() if _is_method(ALIASES.get(name, name))}

methods.attach(FUNCTIONS, METHODS)

__all__ = ["BUILT_IN", "FUNCTIONS", "METHODS", "OPS", "PUBLIC"]
