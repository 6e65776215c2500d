"""Ops that a composite function calls, found in its code without running it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from polyhal.hal.ops.composite import COMPOSITES

_OPS_PACKAGE = "polyhal.hal.ops."


def function_named(name: str) -> Callable[..., Any] | None:
    """Return the public function of that name, in any namespace, that is not an op; None without one."""
    if name in COMPOSITES:
        return COMPOSITES[name]
    for module in [m for n, m in sys.modules.items() if n.startswith(_OPS_PACKAGE)]:
        found = vars(module).get(name)
        if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_"):
            return found
    return None


def called_ops(function: Callable[..., Any]) -> list[str]:
    """Return the names of the ops that a function may call, directly or indirectly, in alphabetical order."""
    found: set[str] = set()
    seen: set[Any] = set()
    pending = [inspect.unwrap(function)]
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        for value in _named_in(current):
            op = getattr(value, "op", None)
            if op is not None:
                found.add(op.name)
            elif inspect.isfunction(value) and value.__module__.startswith(_OPS_PACKAGE):
                pending.append(inspect.unwrap(value))
    return sorted(found)


def _named_in(function: Any) -> Iterator[Any]:
    """Yield the globals that the code of a function refers to, and the values in its closure."""
    if not isinstance(function, FunctionType):
        return
    for cell in function.__closure__ or ():
        yield cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        yield from (function.__globals__[n] for n in code.co_names if n in function.__globals__)
