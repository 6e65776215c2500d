"""`Names`, the further names of an op or function, which are declared with it and nowhere else.

An op has the Array API's name, if that has the function. From the declarations follow the functions of `polyhal`, of
`polyhal.fft`, `linalg` and `special`, methods and in-place methods of tensors, type stubs, and the ops of PyTorch's device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


class Names:
    """Names beyond an op's own: `Names("cat", "concatenate")`.

    also: further functions, as NumPy and PyTorch name them. `special.expit` is a name in that package
        only, and `special.` is the op's own name in it.
    method: True for a tensor method. By default, functions whose first argument is a tensor are methods.
    in_place: True for a method `NAME_`, which replaces the elements of its tensor or, for views, the tensor's shape.
        Elementwise ops without it have one, too.
    aten: overloads of PyTorch's ATen with the arguments of the function, separated by spaces; `.Tensor` is one of ATen's op
        of the same name. Elementwise ops without it have the overloads of their names that take their operands.
    """

    __slots__ = ("also", "aten", "in_place", "method")

    def __init__(self, *also: str, method: bool | None = None, in_place: bool = False, aten: str = "") -> None:
        self.also, self.method, self.in_place, self.aten = also, method, in_place, aten.split()


def spelled(functions: Iterable[Any], package: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the further names of functions, in a package if one is passed, with the functions."""
    for function in functions:
        names: Names = function.__names__
        for name in names.also:
            where, _, last = name.rpartition(".")
            if where == package:
                yield last or function.__name__, function
