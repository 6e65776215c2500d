"""How exactly float32 matrix products are computed: the user's choice between accuracy and tensor cores.

A setting of the process, as in PyTorch. It is part of the key of every plan, so that it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from polyhal.hal.errors import PolyhalError, message

Precision = Literal["highest", "high", "medium"]


class PrecisionError(PolyhalError, ValueError):
    """A precision that does not exist was asked for."""


class _Setting:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Precision = "highest"


setting = _Setting()
"""The precision in force; read it at every use."""


def set_float32_matmul_precision(precision: Precision) -> None:
    """Choose how matmul, linear, convolution and attention multiply float32; other dtypes are not concerned.

    `highest`, the default, is float32 throughout. `high` may split each operand into parts for tensor cores, with an error
    of at most twice that of `highest`. `medium` may round the operands to TF32 or bfloat16, 11 and 8 significant bits.
    Sums are float32 in all of them. A device without such units computes `highest`. Raises PrecisionError.
    """
    if precision not in get_args(Precision):
        raise PrecisionError(
            message("set_float32_matmul_precision", f"got {precision!r}", expected="'highest', 'high' or 'medium'")
        )
    setting.value = precision


def get_float32_matmul_precision() -> Precision:
    """The precision in force."""
    return setting.value


@contextmanager
def float32_matmul_precision(precision: Precision) -> Iterator[None]:
    """Use `precision` inside the block, in the whole process. Raises PrecisionError."""
    before = setting.value
    set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        setting.value = before
