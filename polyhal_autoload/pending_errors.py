"""Python exceptions in a backward pass that are pending while PyTorch's C++ calls the device guard.

A hook that raises leaves its exception pending in the interpreter. While unwinding, PyTorch's engine restores the device's
stream, for which it calls the guard in Python. A Python call that returns with a pending exception raises SystemError, and
PyTorch then terminates the process. So the guard stores the exception, and the engine's entry point raises it at its end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_errors: list[BaseException] = []
_call = functools.partial(tuple)
"""A function that C code calls: Python checks for pending exceptions after it, but not after specialized bytecode calls."""


def set_aside() -> None:
    """Move a pending exception from the interpreter to the list that `with_errors` reads.

    After a call from C, Python raises SystemError with the pending exception as its cause.
    """
    try:
        _call()
    except SystemError as error:
        cause = error.__cause__
        if cause is not None:
            _errors.append(cause)


def with_errors(run: Callable[P, R]) -> Callable[P, R]:
    """Return an engine function that raises the stored exception in place of its SystemError."""

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
