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

from polyhal.hal.ops.tensor_like import TensorLike

F = TypeVar("F", bound=Callable[..., Any])


class Returns(enum.Enum):
    """Memory of a result. The values are sentences of docstrings."""

    NEW = ""
    """New memory, because the function computes elements."""
    COPY = "Returns a copy."
    """New memory in row-major order, also where no element has to be computed."""
    VIEW = "Returns a view."
    """The memory of an argument."""
    EITHER = "Returns a view, or the tensor itself, where nothing has to be computed; else a copy."
    """Memory of an argument where its layout, dtype and device permit it, as PyTorch documents for some functions."""


def returns(kind: Returns) -> Callable[[F], F]:
    """Declare the memory of a function's result, add the sentence to the docstring, and copy a view that must be a `COPY`.

    A `COPY` whose axes are in another order in memory is copied, too, so that `reshape` and `view` of it are views.
    """

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


def own(x: Any) -> Any:
    """Return `x`, a view of memory that a function allocated and nothing else uses: for programs it is not a view.

    In-place writes on the tape therefore keep its node, and the hooks that programs registered with it.
    """
    node = getattr(x, "node", None)
    if node is not None and x.ref.spec.is_contiguous:
        node.is_view = False
    return x


def _copying(function: F) -> F:
    """Wrap a function so that its results never share memory with its arguments, and are row-major."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        out = function(*args, **keywords)
        return _separate(out, {id(x.buffer) for x in _tensors((args, keywords))})

    return call  # type: ignore[return-value]


def _separate(out: TensorLike, taken: set[int]) -> Any:
    """Return `out` with copies of all tensors that are in buffers that are `taken`, or not row-major."""
    if isinstance(out, tuple):
        parts = [_separate(x, taken) for x in out]
        return type(out)(*parts) if hasattr(out, "_fields") else tuple(parts)
    if any(id(x.buffer) in taken or not x.is_contiguous for x in _tensors(out)):
        from polyhal.hal.ops.opdef import OPS

        return OPS["copy"].call(out)
    return own(out)


def _tensors(value: Any) -> Iterator[Any]:
    """Yield all tensors in arguments or results, of complex ones both parts. Traced ones have no memory, and are skipped."""
    if isinstance(value, (tuple, list)):
        for x in value:
            yield from _tensors(x)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif hasattr(value, "ref"):
        if value.dtype.is_complex:
            yield from _tensors((value.real, value.imag))
        else:
            yield value
