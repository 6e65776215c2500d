"""`top_level`, which makes a function or class a name of `polyhal` itself, where it is imported at its first use.

`make generate` collects the marked definitions in `frontend/lazy_names.py` and `frontend/__init__.pyi`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from polyhal.hal.ops.returns import declared_returns

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def top_level(definition: T) -> T:
    """Publish a function, class or constant in `polyhal` under the name of its definition."""
    return definition


def top_level_as(form_of: Callable[[Any], Callable[..., Any]]) -> Callable[[F], F]:
    """Publish `form_of(function)` in `polyhal`: a function of `nn.functional` with the arguments of PyTorch's top level."""

    def publish(function: F) -> F:
        form = form_of(function)
        form.__name__ = form.__qualname__ = function.__name__
        form.__doc__ = function.__doc__
        form.__returns__ = declared_returns(function)  # type: ignore[attr-defined]
        function.__top_level__ = form  # type: ignore[attr-defined]
        return function

    return publish
