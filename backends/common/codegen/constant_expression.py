"""Evaluation of the integer expressions of `#if`. Source: ISO/IEC 9899:1999, 6.6 and 6.10.1."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache

_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": lambda a, b: a // b if b else 0, "%": lambda a, b: a % b if b else 0},
)
"""Binary operators, lowest precedence first. A division by zero yields 0 and only occurs in operands that C skips."""
_UNARY: dict[str, Callable[[int], int]] = {
    "!": operator.not_,
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
}


@lru_cache(maxsize=1024)
def evaluate(tokens: tuple[str, ...]) -> int:
    """Evaluate an expression after macro expansion; remaining names are 0. Raises ValueError."""
    rest = list(reversed(tokens))
    try:
        value = _ternary(rest)
    except IndexError:
        raise ValueError(f"the expression {' '.join(tokens)!r} is incomplete") from None
    if rest:
        raise ValueError(f"cannot parse {' '.join(reversed(rest))!r} in the expression {' '.join(tokens)!r}")
    return value


def _ternary(rest: list[str]) -> int:
    condition = _binary(rest, 0)
    if rest[-1:] != ["?"]:
        return condition
    rest.pop()
    yes = _ternary(rest)
    rest.pop()
    no = _ternary(rest)
    return yes if condition else no


def _binary(rest: list[str], level: int) -> int:
    if level == len(_LEVELS):
        return _operand(rest)
    value = _binary(rest, level + 1)
    while rest and rest[-1] in _LEVELS[level]:
        combine = _LEVELS[level][rest.pop()]
        value = int(combine(value, _binary(rest, level + 1)))
    return value


def _operand(rest: list[str]) -> int:
    token = rest.pop()
    if token in _UNARY:
        return int(_UNARY[token](_operand(rest)))
    if token == "(":
        value = _ternary(rest)
        rest.pop()
        return value
    if token[0].isdigit():
        return _number(token)
    if rest[-1:] == ["("]:  # such as __has_builtin(...), whose value is unknown and 0
        while rest.pop() != ")":
            pass
    return 0


def _number(token: str) -> int:
    digits = token.rstrip("uUlL")
    return int(digits, 8 if digits.isdigit() and len(digits) > 1 and digits[0] == "0" else 0)
