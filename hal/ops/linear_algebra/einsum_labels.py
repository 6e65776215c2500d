"""The notation of `einsum`: equations as labels per axis.

Labels are letters; the axes of an ellipsis are numbered from the right, -1, -2, ..., so that they broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from polyhal.hal.errors import ShapeError, message

Label = str | int
Labels = tuple[Label, ...]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def failure(problem: str, expected: str = "") -> ShapeError:
    """A ShapeError in the common form."""
    return ShapeError(message("einsum", problem, expected=expected))


@lru_cache(1024)
def parse(equation: str, ndims: tuple[int, ...]) -> tuple[tuple[Labels, ...], Labels]:
    """The labels of each operand's axes and of the result's, for operands with these numbers of axes.

    Without an arrow the result has the ellipsis' axes and then, sorted, the letters that occur once. Raises ShapeError.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise failure(f"{equation!r} names {len(terms)} operands, but there are {len(ndims)}")
    operands = tuple(_labels(equation, term, ndim) for term, ndim in zip(terms, ndims, strict=True))
    hidden = min((label for labels in operands for label in labels if isinstance(label, int)), default=0)
    ellipsis: Labels = tuple(range(hidden, 0))
    if arrow:
        output = _output(equation, right, ellipsis)
    else:
        letters = left.replace(".", "").replace(",", "")
        output = (*ellipsis, *sorted(c for c in set(letters) if letters.count(c) == 1))
    known = {label for labels in operands for label in labels}
    missing = [label for label in output if label not in known]
    if missing or len(set(output)) != len(output):
        raise failure(f"the result of {equation!r}", "each of the operands' letters once at most")
    return operands, output


def _labels(equation: str, term: str, ndim: int) -> Labels:
    """The labels of one operand."""
    before, dots, after = term.partition("...")
    if any(c not in _LETTERS for c in before + after):
        raise failure(f"{term!r} in {equation!r}", "letters, and at most one ellipsis")
    hidden = ndim - len(before) - len(after)
    if hidden < 0 or (hidden and not dots):
        raise failure(f"{term!r} in {equation!r} does not fit an operand with {ndim} axes")
    return (*before, *range(-hidden, 0), *after)


def _output(equation: str, term: str, ellipsis: Labels) -> Labels:
    before, dots, after = term.partition("...")
    if any(c not in _LETTERS for c in before + after):
        raise failure(f"{term!r} in {equation!r}", "letters, and at most one ellipsis")
    return (*before, *(ellipsis if dots else ()), *after)


def equation_of(operands: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The equation and the tensors of a call with lists of numbers: x, [0, 1], y, [1, 2], [0, 2].

    `...` among the numbers is the ellipsis. Raises ShapeError for numbers above 51.
    """
    tensors, lists = operands[0 : len(operands) // 2 * 2 : 2], operands[1::2]
    equation = ",".join(map(_term, lists))
    if len(operands) % 2:
        equation += "->" + _term(operands[-1])
    return equation, tuple(tensors)


def _term(numbers: Sequence[Any]) -> str:
    if any(n is not ... and not 0 <= n < len(_LETTERS) for n in numbers):
        raise failure(f"{list(numbers)}", f"numbers from 0 to {len(_LETTERS) - 1} and at most one ellipsis")
    return "".join("..." if n is ... else _LETTERS[n] for n in numbers)
