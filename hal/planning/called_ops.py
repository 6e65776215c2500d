"""Which ops the functions call that are made of ops: read from their code, without running it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from polyhal.hal.ops.composite import COMPOSITES

_ROOM = "polyhal.hal.ops."


def function_named(name: str) -> Callable[..., Any] | None:
    """The public function of that name that is no op: of the package, or of linear algebra, Fourier transforms and the like."""
    if name in COMPOSITES:
        return COMPOSITES[name]
    for module in [m for n, m in sys.modules.items() if n.startswith(_ROOM)]:
        found = vars(module).get(name)
        if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_"):
            return found
    return None


def called_ops(function: Callable[..., Any]) -> list[str]:
    """The names of the ops that a function may call, itself or through others, in alphabetical order."""
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
            elif inspect.isfunction(value) and value.__module__.startswith(_ROOM):
                pending.append(inspect.unwrap(value))
    return sorted(found)


def _named_in(function: Any) -> Iterator[Any]:
    """The objects of its module that the code of a function names, and the functions that it closes over."""
    if not isinstance(function, FunctionType):
        return
    for cell in function.__closure__ or ():
        yield cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        yield from (function.__globals__[n] for n in code.co_names if n in function.__globals__)
