"""Keywords with two spellings: the Array API's, which ops declare, and PyTorch's, which every public function takes too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from polyhal.hal.ops.arguments import arguments

F = TypeVar("F", bound=Callable[..., Any])

SPELLINGS = {
    "axis": "dim",
    "axes": "dims",
    "axis0": "dim0",
    "axis1": "dim1",
    "diagonal": "k",
    "end_axis": "end_dim",
    "keepdims": "keepdim",
    "shift": "shifts",
    "start_axis": "start_dim",
}
"""The name of a parameter and a second one: the Array API's and PyTorch's, but PyTorch's `diagonal` and the Array API's `k`."""
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "..."})()
"""The default of a keyword that is not given."""


def second_spellings(names: Iterable[str], spellings: Mapping[str, str] = SPELLINGS) -> dict[str, str]:
    """PyTorch's spelling of each parameter that has one, unless it names another parameter."""
    names = tuple(names)
    return {name: spellings[name] for name in names if name in spellings and spellings[name] not in names}


def chosen(function: str, name: str, value: Any, spelling: str, second: Any, default: Any) -> Any:
    """The value of a parameter with two spellings. Raises TypeError if both are given, or none of a required one."""
    if second is MISSING:
        if value is MISSING:
            raise TypeError(f"{function}() missing 1 required argument: {name!r}")
        return value
    if value is not default:
        raise TypeError(f"{function}() got both {name!r} and {spelling!r}, two spellings of one argument")
    return second


def takes_both_spellings(function: F, further: Mapping[str, str] = MappingProxyType({})) -> F:
    """Make a function accept PyTorch's spelling of its keywords: of `SPELLINGS`, and of `further` in this function only."""
    positional, keyword_only, _, _ = arguments(function)
    spellings = second_spellings((*positional, *keyword_only), {**SPELLINGS, **further})
    if not spellings:
        return function
    canonical = {second: name for name, second in spellings.items()}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for second in kwargs.keys() & canonical.keys():
            name = canonical[second]
            if name in kwargs:
                raise TypeError(
                    f"{function.__name__}() got both {name!r} and {second!r}, two spellings of one argument"
                )
            kwargs[name] = kwargs.pop(second)
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    extra = [inspect.Parameter(second, inspect.Parameter.KEYWORD_ONLY, default=MISSING) for second in canonical]
    call.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *extra])  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]
