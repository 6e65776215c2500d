"""Functions made only of other ops: no plan, kernel or gradient of their own, but a method and a place in the docs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

COMPOSITES: dict[str, Callable[..., Any]] = {}
COMPOSITE_METHODS: set[str] = set()


def composite(*, method: bool = True) -> Callable[[F], F]:
    """Publish a function under its own name, as a method too unless told otherwise."""

    def register(function: F) -> F:
        COMPOSITES[function.__name__] = function
        if method:
            COMPOSITE_METHODS.add(function.__name__)
        return function

    return register
