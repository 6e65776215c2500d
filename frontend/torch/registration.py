"""Table of ATen ops: the function on Polyhal tensors for each overload.

The device, recorded steps and the compiler use the table. A function takes the arguments of the overload's schema, with
their names and order, as Polyhal tensors, dtypes and devices. Callers handle layouts, pinned memory, memory formats and
generators, which functions do not take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from polyhal.hal.ops.opdef import OpDef
from polyhal.torch import private

if TYPE_CHECKING:
    from polyhal.torch.call_types import Operator

F = TypeVar("F", bound=Callable[..., Any])

HANDLED = frozenset({"layout", "pin_memory", "non_blocking", "memory_format", "generator"})
"""Arguments that callers handle and table functions do not take."""


class UnsupportedArgumentsError(Exception):
    """A table function does not cover these arguments: the caller falls back."""


class Entry(NamedTuple):
    """One overload of ATen."""

    function: Callable[..., Any]
    op: OpDef | None
    """Polyhal's op with the same arguments, which can write its result in place; None if there is none."""
    is_view: bool
    """True if the result is a view of the first argument. On the device, PyTorch computes such overloads."""
    keeps_format: bool = False
    """True if PyTorch returns results with channels last for an input with channels last."""


TABLE: dict[str, Entry] = {}
"""Entries by overload, as in `add.Tensor` and `relu.default`."""


LIBRARY_OPS: dict[str, Callable[..., Any]] = {}
"""Functions for ops that libraries define, by full name, as in `transformers::grouped_mm_fallback`, with the op's arguments.
Compiled graphs call them; eagerly the library's own code runs."""


def full_name(name: str) -> str:
    """Return the full name of an overload; its second part defaults to `default`."""
    return name if "." in name else f"{name}.default"


def add_entry(name: str, entry: Entry) -> None:
    """Add one overload to the table. Raises ValueError for a second entry."""
    name = full_name(name)
    if name in TABLE:
        raise ValueError(f"aten::{name} is in the table twice")
    TABLE[name] = entry


def aten(*names: str, is_view: bool = False, keeps_format: bool = False) -> Callable[[F], F]:
    """Declare that a function computes these overloads: `@aten("silu_backward")`."""

    def declare(function: F) -> F:
        for name in names:
            add_entry(name, Entry(function, None, is_view, keeps_format))
        return function

    return declare


def library_op(name: str) -> Callable[[F], F]:
    """Declare that a function computes an op that a library defines: `@library_op("transformers::grouped_mm_fallback")`."""

    def declare(function: F) -> F:
        LIBRARY_OPS[name] = function
        return function

    return declare


def aten_view(*names: str) -> Callable[[F], F]:
    """Declare overloads whose result is a view of their first argument."""
    return aten(*names, is_view=True)


def writes_first(op: Operator) -> bool:
    """Return whether an overload writes to its first argument, by its schema."""
    arguments = op._schema.arguments
    return bool(arguments) and arguments[0].alias_info is not None and bool(arguments[0].alias_info.is_write)


def cuts_gradients(op: Any) -> bool:
    """Return whether a kernel for this overload would hide it from autograd, which differentiates it through its parts."""
    name = op.name()
    return private.has_kernel(name, "CompositeImplicitAutograd") and not private.has_kernel(name, "Autograd")
