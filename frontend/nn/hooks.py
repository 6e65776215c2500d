"""Functions that a module calls before and after its forward pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

_numbers = itertools.count()


class HookHandle:
    """Removes a hook: call it, or its `remove`."""

    __slots__ = ("_number", "_table")

    def __init__(self, table: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._number = next(_numbers)
        self._table = table
        table[self._number] = hook

    def remove(self) -> None:
        """Remove the hook. Removing it twice is harmless."""
        self._table.pop(self._number, None)

    __call__ = remove
