"""Functions that run after all other `atexit` handlers.

`atexit` handlers run in reverse order. This module is imported with the package, so its handler runs after handlers
that backends and programs register later: pending reads are delivered before threads are stopped.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable


@functools.cache
def _functions() -> list[Callable[[], object]]:
    """Return the registered functions, in order of registration."""
    return []


def do_last(function: Callable[[], object]) -> None:
    """Call `function` when the process ends, after all later-registered functions of `atexit`."""
    _functions().append(function)


@atexit.register
def _do() -> None:
    while _functions():
        _functions().pop()()
