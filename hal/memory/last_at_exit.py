"""What is done after everything else when the process ends.

Functions of `atexit` are called in reverse order. This module is imported with the package, so that its own comes after those
that backends and programs register later: reads that are still awaited are delivered before threads are told to end.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable


@functools.cache
def _functions() -> list[Callable[[], object]]:
    """In the order in which they were given."""
    return []


def do_last(function: Callable[[], object]) -> None:
    """Call `function` when the process ends, after all functions of `atexit` that are registered from now on."""
    _functions().append(function)


@atexit.register
def _do() -> None:
    while _functions():
        _functions().pop()()
