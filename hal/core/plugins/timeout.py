"""Time limits for foreign code.

Python cannot interrupt code that hangs inside a driver, but it can stop waiting for it. Code that hangs stays in a
daemon thread, which ends with the process. Code that hangs without releasing the interpreter's lock blocks everything;
no code in the same process can prevent that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NoAnswerError(TimeoutError):
    """A call exceeded its time limit."""


def within(seconds: float, work: Callable[[], T], name: str) -> T:
    """Return the result or raise the error of `work`, run in a thread called `name`. Raises NoAnswerError if it takes longer.

    Exceptions that would end the program, such as SystemExit, arrive as RuntimeError: only the user ends the program.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised in the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run, name=f"polyhal: {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        error = errors[0]
        if isinstance(error, Exception):
            raise error
        raise RuntimeError(f"it raised {_call(error)}") from error
    if not results:
        raise NoAnswerError(f"no answer within {seconds:g} s")
    return results[0]


def _call(error: BaseException) -> str:
    """Format an exception as its constructor call, without arguments that cannot be formatted."""
    name = type(error).__name__
    try:
        return f"{name}({', '.join(map(repr, error.args))})"
    except BaseException:  # the arguments of a plug-in's exception may be anything
        return name
