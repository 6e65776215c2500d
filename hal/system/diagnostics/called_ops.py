"""Ops that a function or the methods of a class call, found in their code without running it."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef

_OPS_PACKAGE = "polyhal.hal.ops."
_CONTAINERS = frozenset(n for c in (str, list, tuple, dict, set) for n in dir(c))
"""Names of methods of Python's own types."""


def called_ops(
    function: Callable[..., Any], packages: Collection[str] = (), owners: tuple[type, ...] = ()
) -> list[str]:
    """Return the names of the ops that a function may call, directly or indirectly, in alphabetical order.

    Follows functions of the ops, of modules whose names begin with one of `packages`, and methods of the classes `owners`.
    """
    followed = (_OPS_PACKAGE, *packages)
    found: set[str] = set()
    seen: set[int] = set()
    pending: list[Any] = [function]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        op = current if isinstance(current, OpDef) else getattr(current, "op", None)
        if isinstance(op, OpDef):
            found.add(op.name)
            continue
        inner = inspect.unwrap(current) if callable(current) else None
        if inspect.isfunction(inner) and inner.__module__.startswith(followed):
            pending += named_in(inner, owners)
        elif inspect.isclass(current) and current.__name__.startswith("_") and current.__module__.startswith(followed):
            pending += [value for value in vars(current).values() if inspect.isfunction(value)]
    return sorted(found)


@functools.cache
def named_in(function: Any, owners: tuple[type, ...] = ()) -> tuple[Any, ...]:
    """Return the globals that the code of a function refers to, the values in its closure, and members of both.

    An attribute of any other object may be a method of one of `owners`.
    """
    return tuple(x for x in _named_in(function, owners) if x is not None)


def _named_in(function: Any, owners: tuple[type, ...]) -> Iterator[Any]:
    if not isinstance(function, FunctionType):
        return
    for cell in function.__closure__ or ():
        if not _is_empty(cell):
            yield cell.cell_contents
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        loaded: Any = None
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if instruction.opname == "LOAD_GLOBAL":
                loaded = function.__globals__.get(name)
                yield loaded
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                loaded = vars(loaded).get(name) if isinstance(loaded, ModuleType) else _method(owners, name)
                yield loaded
            elif instruction.opname == "LOAD_CONST" and loaded is OPS and isinstance(name, str) and name in OPS:
                yield OPS[name]
            elif instruction.opname not in ("CACHE", "PUSH_NULL"):
                loaded = None


def _method(owners: tuple[type, ...], name: str) -> Any:
    """Return a function that one of some classes has under a name; None without one, or if it may belong to a container."""
    if name in _CONTAINERS:
        return None
    found = next((found for c in owners if (found := inspect.getattr_static(c, name, None)) is not None), None)
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is None
    except ValueError:  # a variable that is not assigned yet
        return True
