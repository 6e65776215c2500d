"""The arguments of a Python function, read off its code object.

`inspect.signature` returns the same result fifty times more slowly, and every op has several functions whose arguments are
its declaration.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple


class Arguments(NamedTuple):
    """Names and defaults of a function's arguments."""

    positional: tuple[str, ...]
    """With the names of `*args` and `**kwargs`, if there are such."""
    keyword_only: tuple[str, ...]
    defaults: Mapping[str, Any]
    """Of the arguments that have one."""
    variadic: bool
    """It takes `*args`."""


def arguments(function: Callable[..., Any]) -> Arguments:
    """Read the arguments of a Python function, of the function that it wraps, or of one whose first arguments are bound.

    Raises TypeError for other callables.
    """
    bound = 0
    if isinstance(function, functools.partial):
        bound, function = len(function.args), function.func
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType):
        raise TypeError(f"{function!r} is no Python function; wrap it in one, whose arguments can be read")
    code = function.__code__
    count = code.co_argcount
    fixed = code.co_varnames[:count]
    keyword_only = code.co_varnames[count : count + code.co_kwonlyargcount]
    rest = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    start = count + len(keyword_only)
    last = function.__defaults__ or ()
    return Arguments(
        fixed[bound:] + code.co_varnames[start : start + rest],
        keyword_only,
        {**dict(zip(fixed[count - len(last) :], last, strict=True)), **(function.__kwdefaults__ or {})},
        bool(code.co_flags & inspect.CO_VARARGS),
    )
