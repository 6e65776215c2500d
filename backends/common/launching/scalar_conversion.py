"""Conversion of Python numbers to the scalars of kernels, with the range of each C type."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from polyhal.hal.core.dispatch.number_range import in_64_bits
from polyhal.hal.errors import NumberRangeError, message

_BEYOND_SINGLE = float.fromhex("0x1.ffffffp127")
"""The smallest number that rounds to a single-precision infinity."""


def _integer(kind: str, least: int, most: int, value: Any) -> int:
    number = int(value)
    if not least <= number <= most:
        problem, fix = (
            f"{number} does not fit the type {kind}",
            "declare a larger type in the kernel, or pass a smaller number",
        )
        raise NumberRangeError(message("number", problem, expected=f"{least} to {most}", fix=fix))
    return number


def _long(value: Any) -> int:
    return in_64_bits(int(value))


def _single(value: Any) -> float:
    """Return a number that can be stored as a single-precision float: infinite if it is too large."""
    number = float(value)
    return math.copysign(math.inf, number) if abs(number) >= _BEYOND_SINGLE else number


CONVERTERS: dict[str, Callable[[Any], int | float]] = {
    "int": partial(_integer, "int", -(1 << 31), (1 << 31) - 1),
    "uint": partial(_integer, "uint", 0, (1 << 32) - 1),
    "long": _long,
    "ulong": partial(_integer, "ulong", 0, (1 << 64) - 1),
    "float": _single,
    "double": float,
}
"""Functions that convert a Python number to a scalar by its type. They raise NumberRangeError, except that integers of 64
bits wrap to `long` and large numbers become infinite floats."""
