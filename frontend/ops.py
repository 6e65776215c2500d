"""Ops of installed packages, as functions: `polyhal.ops.swiglu(x)` for an op `swiglu`.

Packages offer ops through the entry-point group `polyhal.ops` (docs/adding-an-op.md). Each is imported when it is first
named. Our own ops are functions of `polyhal`.
"""

from __future__ import annotations

from typing import Any

from polyhal.hal.compile.op_plugins import op_plugins
from polyhal.hal.core.plugins.entry_points import PluginError


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return op_plugins().function(name)
    except KeyError as error:
        raise AttributeError(error.args[0]) from None
    except PluginError as error:
        raise AttributeError(f"the op {name!r} cannot be declared: {error}; {error.fix}") from error


def __dir__() -> list[str]:
    return op_plugins().names()
