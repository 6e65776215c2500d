"""Errors about indices out of range name the function that the program calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from polyhal.hal.core.dispatch.bounds import IndexRangeError

F = TypeVar("F", bound=Callable[..., Any])


def names_range_errors(function: F) -> F:
    """Name the function in the IndexRangeError of an op in its implementation."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except IndexRangeError as error:
            raise error.named(function.__name__) from None

    return call  # type: ignore[return-value]
