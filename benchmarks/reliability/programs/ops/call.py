"""One kind of call in programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.reliability.programs.draw import Draw, UnfitError, Var


class Call(NamedTuple):
    """A kind of call: its name, and a function that draws operands and returns the expression."""

    op: str
    draw: Callable[[Draw], str]


def of_floats(op: str, *forms: str, least: int = 0, nonempty: bool = False) -> Call:
    """Calls of one floating-point tensor. In the forms, {x} is it, {a} an axis of it, {n} a number, {k} "True" or "False"."""
    return Call(op, lambda d: _filled(d, d.floats(least, nonempty=nonempty), d.one(forms)))


def of_any(op: str, *forms: str, least: int = 0, integers: bool = True) -> Call:
    """Calls of one tensor of any dtype but bool, as `of_floats` fills them."""

    def draw(d: Draw) -> str:
        def suits(t: object) -> bool:
            name = str(t.dtype)  # type: ignore[attr-defined]
            return t.ndim >= least and "bool" not in name and "uint8" not in name and "complex" not in name  # type: ignore[attr-defined]

        x = d.tensor(suits) if integers and d.chance(0.5) else d.floats(least)
        return _filled(d, x, d.one(forms))

    return Call(op, draw)


def _filled(d: Draw, x: Var, form: str) -> str:
    return form.format(
        x=x,
        a=d.axis(x) if "{a" in form else 0,
        aa=d.axes(x) if "{aa}" in form else (),
        n=d.number(),
        k=d.chance(0.5),
    )


def length_of(x: Var, axis: int) -> int:
    """The length of an axis, which must not be empty."""
    if not x.shape[axis]:
        raise UnfitError
    return x.shape[axis]
