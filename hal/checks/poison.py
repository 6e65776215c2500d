"""Uninitialized memory is poisoned in debug mode: NaN among floats, and a pattern that stands out among others.

A program that reads elements of `empty` before it writes them gets zeros, or what an earlier tensor left, by chance. Poison
makes that show in its results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polyhal.hal.checks.observer import ObservedCall
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Number

_PATTERN = 0x5A
"""A byte of a poisoned integer."""


class PoisonCheck:
    """Fills the results of ops that leave them undefined."""

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Fill the results of a call after it has run."""
        yield
        if call.is_undefined:
            for out in call.outputs:
                if out.size:
                    call.device.backend.fill(poison(out.dtype), out)


POISON = PoisonCheck()


def poison(dtype: DType) -> Number:
    """What uninitialized elements of a dtype are in debug mode."""
    if dtype.kind == "float":
        return float("nan")
    return True if dtype.kind == "bool" else int.from_bytes([_PATTERN] * dtype.itemsize, "little")
