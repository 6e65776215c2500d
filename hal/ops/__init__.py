"""All ops, each declared once. Importing the package imports every module in it, which declares the ops, and attaches
the tensor methods.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from polyhal.hal.ops import methods
from polyhal.hal.ops.composite import COMPOSITES, EXTENSIONS, PACKAGED
from polyhal.hal.ops.docstrings import docstring
from polyhal.hal.ops.names import Names, spelled
from polyhal.hal.ops.opdef import OPS

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

for _op in OPS:
    _op.call.__doc__ = docstring(_op)

BUILT_IN: frozenset[str] = frozenset(OPS.names())
"""The names of our own ops. Those of other packages are declared later."""

FUNCTIONS: dict[str, Callable[..., Any]] = {op.name: op.call for op in OPS} | COMPOSITES
"""Every op and composite by name. A composite replaces the op of the same name, which it extends."""


DECLARED: tuple[Callable[..., Any], ...] = (
    *[op.call for op in OPS],
    *COMPOSITES.values(),
    *EXTENSIONS.values(),
    *PACKAGED,
)
"""Every function that a declaration makes."""


def _is_public(name: str) -> bool:
    return name in COMPOSITES or (OPS[name].public and not name.endswith("_grad"))


def _is_method(function: Any) -> bool:
    names: Names = function.__names__
    if names.method is not None:
        return names.method
    schema = function.op.schema
    return bool(schema.inputs) and not schema.variadic


PUBLIC: dict[str, Callable[..., Any]] = {name: f for name, f in FUNCTIONS.items() if _is_public(name)} | EXTENSIONS
"""The functions that users call by name."""

PUBLIC |= dict(spelled(PUBLIC.values()))
FFT: dict[str, Callable[..., Any]] = dict(spelled(DECLARED, "fft"))
"""The transforms of `polyhal.fft`."""
LINALG: dict[str, Callable[..., Any]] = dict(spelled(DECLARED, "linalg"))
"""The functions of `polyhal.linalg`."""
SPECIAL: dict[str, Callable[..., Any]] = dict(spelled(DECLARED, "special"))
"""The functions of `polyhal.special`."""
NUMPY: dict[str, Callable[..., Any]] = PUBLIC | dict(spelled(DECLARED, "numpy"))
"""Functions by the names of NumPy's universal functions, and all public ones by their own."""

METHODS: dict[str, Callable[..., Any]] = {name: f for name, f in PUBLIC.items() if _is_method(f)}

methods.attach(FUNCTIONS, METHODS)

__all__ = ["BUILT_IN", "DECLARED", "FFT", "FUNCTIONS", "LINALG", "METHODS", "NUMPY", "OPS", "PUBLIC", "SPECIAL"]
