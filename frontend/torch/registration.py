"""The table of ATen ops: which function on Polyhal tensors an overload is.

The table serves the device, recorded steps and the compiler alike. A function takes what the overload's schema says, under
the same names and in the same order, with Polyhal tensors in place of PyTorch's, Polyhal dtypes and devices; layouts, pinned
memory, memory formats and generators are the callers' affair and are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef

F = TypeVar("F", bound=Callable[..., Any])

HANDLED = frozenset({"layout", "pin_memory", "non_blocking", "memory_format", "generator"})
"""Arguments that no function of the table sees."""


class UnsupportedArgumentsError(Exception):
    """A function of the table does not cover these arguments: the caller falls back."""


class Entry(NamedTuple):
    """One overload of ATen."""

    function: Callable[..., Any]
    op: OpDef | None
    """The op of Polyhal that the overload is, argument for argument; it can write its result in place."""
    is_view: bool
    """Whether the result lies in the memory of the first argument. The device leaves such overloads to PyTorch."""
    keeps_format: bool = False
    """Whether PyTorch promises results with channels last for an input that has them."""


TABLE: dict[str, Entry] = {}
"""Entries by overload, as in `add.Tensor` and `relu.default`."""


def full_name(name: str) -> str:
    """The name of an overload with its second part, which is `default` if it was left out."""
    return name if "." in name else f"{name}.default"


def add_entry(name: str, entry: Entry) -> None:
    """Add one overload to the table. Raises ValueError if it is there."""
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


def aten_view(*names: str) -> Callable[[F], F]:
    """Declare overloads whose result lies in the memory of their first argument."""
    return aten(*names, is_view=True)


def same_op(op: str, *names: str, via: Callable[..., Any] | None = None) -> None:
    """Declare that overloads are the op `op` of Polyhal, argument for argument; `via` prepares the arguments and calls it."""
    for name in names:
        add_entry(name, Entry(via or OPS[op].call, OPS[op], False))


def writes_first(op: Any) -> bool:
    """Return whether an overload writes to its first argument, by its schema."""
    arguments = op._schema.arguments
    return bool(arguments) and arguments[0].alias_info is not None and bool(arguments[0].alias_info.is_write)
