"""Shapes as users write them: as separate lengths, as one sequence, or by keyword."""

from __future__ import annotations

import math
import operator
from functools import lru_cache
from typing import Any

from polyhal.hal.errors import ShapeError, message

Shape = int | tuple[int, ...] | list[int]


class ElementCount(int):
    """Number of elements of a shape that, as PyTorch's method `size`, returns the shape when it is called."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __reduce__(self) -> Any:
        return int, (int(self),)


@lru_cache(4096)
def element_count(shape: tuple[int, ...]) -> ElementCount:
    """Count the elements of `shape`."""
    count = ElementCount(math.prod(shape))
    count.shape = shape
    return count


def lengths_of(function: str, *shape: Any, size: Any = None) -> tuple[int, ...]:
    """Return the lengths that `zeros(2, 3)`, `zeros((2, 3))`, `zeros(size=(2, 3))` or `zeros(2)` name.

    Raises TypeError for an object that is not a shape and ShapeError for negative lengths.
    """
    if size is not None:
        if shape:
            raise TypeError(message(function, "got a shape twice: by position and by keyword", expected="one of them"))
        shape = (size,)
    items = tuple(shape[0]) if len(shape) == 1 and _is_sequence(shape[0]) else shape
    try:
        lengths = tuple(operator.index(n) for n in items)
    except TypeError as error:
        written = ", ".join(repr(n) for n in items)
        fix = "write dtype=... and device=... by name"
        raise TypeError(
            message(function, f"({written}) is no shape", expected="integers, or one tuple of integers", fix=fix)
        ) from error
    if any(n < 0 for n in lengths):
        raise ShapeError(message(function, f"shape {lengths} has a negative length", expected="lengths of 0 or more"))
    return lengths


def shape_and_options(function: str, arguments: tuple[Any, ...], size: Any, names: int) -> tuple[tuple[int, ...], Any]:
    """Split positional arguments into a shape and up to `names` options, which may only follow a shape given as a sequence."""
    if arguments and _is_sequence(arguments[0]) and size is None:
        options = arguments[1:]
        if len(options) > names:
            raise TypeError(
                f"{function}() takes a shape and {names} more positional arguments; {len(options)} were given"
            )
        return lengths_of(function, arguments[0]), options
    return lengths_of(function, *arguments, size=size), ()


def _is_sequence(value: int | tuple[int, ...]) -> bool:
    return isinstance(value, (tuple, list))
