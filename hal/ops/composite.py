"""Composites: public functions made of other ops, without a plan, kernel or gradient of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from polyhal.hal.ops.keywords import takes_both_spellings
from polyhal.hal.ops.returns import Returns
from polyhal.hal.ops.returns import returns as declared

F = TypeVar("F", bound=Callable[..., Any])

COMPOSITES: dict[str, Callable[..., Any]] = {}
"""Every composite by name; the decorator fills it while the package is imported."""
COMPOSITE_METHODS: set[str] = set()
"""Names of composites that are tensor methods too."""
EXTENSIONS: dict[str, Callable[..., Any]] = {}
"""Composites with more arguments than the op of the same name. Operators and the library call the op itself."""


def composite(*, method: bool = True, returns: Returns = Returns.NEW, extends: bool = False) -> Callable[[F], F]:
    """Publish a function under its own name and, with `method`, as a tensor method; with `extends`, in place of an op.

    `returns` declares whether the result is a view or a copy; its sentence is added to the docstring.
    """

    def register(function: F) -> F:
        function = declared(returns)(takes_both_spellings(function))
        (EXTENSIONS if extends else COMPOSITES)[function.__name__] = function
        if method:
            COMPOSITE_METHODS.add(function.__name__)
        return function

    return register


__all__ = ["COMPOSITES", "COMPOSITE_METHODS", "Returns", "composite"]
