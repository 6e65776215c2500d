"""Poison for uninitialized memory in debug mode: NaN in floats, and a conspicuous pattern in other dtypes.

Elements of `empty` that a program reads before it writes them are zeros, or elements of an earlier tensor, by chance.
Poison is visible in the program's results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polyhal.hal.core.dispatch.observer import ObservedCall
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Number

_PATTERN = 0x5A
"""Byte that fills a poisoned integer."""


class PoisonCheck:
    """Fills the results of ops that leave them uninitialized."""

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Fill the results of a call after it has run."""
        yield
        if call.op.is_undefined:
            for out in call.outputs:
                if out.size:
                    call.device.backend.fill(poison(out.dtype), out)


POISON = PoisonCheck()


def poison(dtype: DType) -> Number:
    """Return the value of uninitialized elements of a dtype in debug mode."""
    if dtype.kind == "float":
        return float("nan")
    return True if dtype.kind == "bool" else int.from_bytes([_PATTERN] * dtype.itemsize, "little")
