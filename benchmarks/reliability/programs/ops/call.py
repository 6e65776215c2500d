"""One kind of call in programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from benchmarks.reliability.programs.draw import Draw, UnfitError, Var


class Call(NamedTuple):
    """A kind of call: its name, and a function that draws operands and returns the expression."""

    op: str
    draw: Callable[[Draw], str]


def of_floats(op: str, *forms: str, least: int = 0, most: int = 9, nonempty: bool = False) -> Call:
    """Declare calls of one floating-point tensor of so many axes, in one of the forms, see `filled`."""
    return Call(op, lambda d: filled(d, d.floats(least, most, nonempty=nonempty), d.one(forms)))


def of_any(op: str, *forms: str, least: int = 0) -> Call:
    """Declare calls of one tensor of any dtype but bool, uint8 and complex ones, in one of the forms."""

    def draw(d: Draw) -> str:
        def suits(t: torch.Tensor) -> bool:
            return t.ndim >= least and not t.is_complex() and t.dtype not in (torch.bool, torch.uint8)

        return filled(d, d.tensor(suits) if d.chance(0.5) else d.floats(least), d.one(forms))

    return Call(op, draw)


def of_tensors(op: str, *forms: str, least: int = 0, most: int = 9, nonempty: bool = False) -> Call:
    """Declare calls of one tensor of any dtype but complex ones, in one of the forms."""

    def suits(t: torch.Tensor) -> bool:
        return least <= t.ndim <= most and not t.is_complex() and (t.numel() > 0 or not nonempty)

    return of_fit(op, suits, *forms)


def of_fit(op: str, suits: Callable[[torch.Tensor], bool], *forms: str) -> Call:
    """Declare calls of one tensor that suits, in one of the forms."""
    return Call(op, lambda d: filled(d, d.tensor(suits), d.one(forms)))


_FIELDS: dict[str, Callable[[Draw, Var], object]] = {
    "a": lambda d, x: d.axis(x),
    "b": lambda d, x: d.axis(x),
    "aa": lambda d, x: d.axes(x),
    "n": lambda d, x: d.number(),
    "k": lambda d, x: d.chance(0.5),
    "o": lambda d, x: d.one((0, 0, 1, -1)),
    "c": lambda d, x: d.one((1, 2)),
    "y": lambda d, x: d.fitting(x.shape, x.t.dtype),
    "z": lambda d, x: d.beside(x),
    "m": lambda d, x: d.mask(x.shape),
    "r": lambda d, x: repr(d.one(("mean", "sum", "none"))),
}


def filled(d: Draw, x: Var, form: str) -> str:
    """Fill the fields of a form for tensor {x}.

    {a} and {b} are axes of it, {aa} several axes, {n} a number, {k} a bool, {o} the offset of a diagonal, {c} 1 or 2, {y} a
    tensor of its shape and dtype, {z} one that broadcasts with it, {m} a mask for it, {r} the reduction of a loss.
    """
    return form.format(x=x, **{name: draw(d, x) for name, draw in _FIELDS.items() if f"{{{name}}}" in form})


def length_of(x: Var, axis: int) -> int:
    """Return the length of an axis, which must not be empty."""
    if not x.shape[axis]:
        raise UnfitError
    return x.shape[axis]
