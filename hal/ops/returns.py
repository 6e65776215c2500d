"""Views and copies: each public function declares the memory of its result, independently of the values of arguments.

A function without a declaration computes its result in new memory. Every other declaration is a sentence of the docstring.
A test calls every public function with arguments for which nothing has to be computed.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Returns(enum.Enum):
    """Memory of a result. The values are sentences of docstrings."""

    NEW = ""
    """New memory, because the function computes elements."""
    COPY = "Returns a copy."
    """New memory, also where no element has to be computed."""
    VIEW = "Returns a view."
    """The memory of an argument."""
    EITHER = "Returns a view, or the tensor itself, where nothing has to be computed; else a copy."
    """Memory of an argument where its layout, dtype and device permit it, as PyTorch documents for some functions."""


def returns(kind: Returns) -> Callable[[F], F]:
    """Declare the memory of a function's result, add the sentence to the docstring, and copy a view that must be a `COPY`."""

    def declare(function: F) -> F:
        declared = _copying(function) if kind is Returns.COPY else function
        several = str(function.__annotations__.get("return")).startswith("tuple")
        declared.__doc__ = with_sentence(function.__doc__, kind, several=several)
        declared.__returns__ = kind  # type: ignore[attr-defined]
        return declared

    return declare


def declared_returns(function: Any) -> Returns:
    """Return the declaration of a public function, method or op."""
    kind: Returns = getattr(function, "__returns__", Returns.NEW)
    return kind


def with_sentence(doc: str | None, kind: Returns, *, several: bool = False) -> str:
    """Add the sentence of a kind, in the plural for `several` results, to a docstring after its first paragraph."""
    first, _, rest = inspect.cleandoc(doc or "").partition("\n\n")
    if kind is Returns.NEW:
        return f"{first}\n\n{rest}" if rest else first
    sentence = kind.value.replace("a view.", "views.") if several else kind.value
    separator = "\n\n" if rest.startswith(">>>") or not rest else " "
    return f"{first}\n\n{sentence}{separator}{rest}".rstrip()


def _copying(function: F) -> F:
    """Wrap a function so that its results never share memory with its arguments."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        out = function(*args, **keywords)
        return _separate(out, {id(b) for b in _buffers((args, keywords))})

    return call  # type: ignore[return-value]


def _separate(out: Any, taken: set[int]) -> Any:
    """Return `out` with copies of all tensors in buffers that are `taken`."""
    if isinstance(out, tuple):
        parts = [_separate(x, taken) for x in out]
        return type(out)(*parts) if hasattr(out, "_fields") else tuple(parts)
    if any(id(b) in taken for b in _buffers(out)):
        from polyhal.hal.ops.opdef import OPS

        return OPS["copy"].call(out)
    return out


def _buffers(value: Any) -> Iterator[Any]:
    """Yield the buffers of all tensors in arguments or results. Tensors that are only traced have none."""
    if isinstance(value, (tuple, list)):
        for x in value:
            yield from _buffers(x)
    elif isinstance(value, dict):
        yield from _buffers(tuple(value.values()))
    elif hasattr(value, "ref"):
        if value.dtype.is_complex:
            yield from _buffers((value.real, value.imag))
        else:
            yield value.buffer
