"""Errors that Python raises in a backward pass while PyTorch's C++ calls Python to leave a device.

A hook that raises leaves its error pending in the interpreter. On the way out PyTorch's engine restores the device's stream,
which asks the guard, in Python, for the kind of the device. Python refuses to return from a call while an error is pending, and
PyTorch ends the process. So the guard sets the error aside, and the call of the engine raises it at its end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_errors: list[BaseException] = []
_call = functools.partial(tuple)
"""A call from C, whose end Python checks: those in bytecode are specialized and not checked."""


def set_aside() -> None:
    """Take a pending error off the interpreter, and keep it for `with_errors`.

    At the end of a call from C Python makes a pending error the cause of a SystemError.
    """
    try:
        _call()
    except SystemError as error:
        cause = error.__cause__
        if cause is not None:
            _errors.append(cause)


def with_errors(run: Callable[P, R]) -> Callable[P, R]:
    """A function of PyTorch's engine that raises the error that was set aside where it only knows that there was one."""

    @functools.wraps(run)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return run(*args, **kwargs)
        except SystemError:
            if not _errors:
                raise
            error = _errors.pop()
            _errors.clear()
        raise error

    return call
