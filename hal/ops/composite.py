"""Composites: public functions made of other ops, without a plan, kernel or gradient of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from polyhal.hal.ops.keywords import takes_both_spellings
from polyhal.hal.ops.names import Names
from polyhal.hal.ops.returns import Returns
from polyhal.hal.ops.returns import returns as declared

F = TypeVar("F", bound=Callable[..., Any])

COMPOSITES: dict[str, Callable[..., Any]] = {}
"""Every composite by name; the decorator fills it while the package is imported."""
PACKAGED: list[Callable[..., Any]] = []
"""Functions of packages such as `linalg` alone."""
EXTENSIONS: dict[str, Callable[..., Any]] = {}
"""Composites with more arguments than the op of the same name. Operators and the library call the op itself."""


def composite(
    *also: str,
    method: bool = True,
    in_place: bool = False,
    aten: str = "",
    returns: Returns = Returns.NEW,
    extends: bool = False,
    public: bool = True,
    keywords: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[F], F]:
    """Publish a function under its own name and further ones (see `Names`); with `extends`, in place of an op.

    A function that is not `public` has the names in packages only, as `linalg.eig`. `keywords` are PyTorch's spellings of its
    parameters beyond `SPELLINGS`.

    `returns` declares whether the result is a view or a copy; its sentence is added to the docstring.
    """

    def register(function: F) -> F:
        function = declared(returns)(takes_both_spellings(function, keywords))
        function.__names__ = Names(*also, method=method, in_place=in_place, aten=aten)  # type: ignore[attr-defined]
        if public:
            (EXTENSIONS if extends else COMPOSITES)[function.__name__] = function
        else:
            PACKAGED.append(function)
        return function

    return register


__all__ = ["COMPOSITES", "PACKAGED", "Returns", "composite"]
