"""How exactly float32 matrix products are computed: the user's choice between accuracy and tensor cores.

A setting of the process, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from polyhal.hal.errors import PolyhalError, message
from polyhal.hal.settings.state import Precision, settings

_PRECISIONS = get_args(Precision)


class PrecisionError(PolyhalError, ValueError):
    """A precision that does not exist was asked for."""


def set_float32_matmul_precision(precision: Precision) -> None:
    """Choose how matmul, linear, convolution and attention multiply float32; other dtypes are not concerned.

    `highest`, the default, is float32 throughout. `high` may split each operand into parts for tensor cores, with an error
    of at most twice that of `highest`. `medium` may round the operands to TF32 or bfloat16, 11 and 8 significant bits.
    Sums are float32 in all of them. A device without such units computes `highest`. Raises PrecisionError.
    """
    if precision not in _PRECISIONS:
        raise PrecisionError(
            message("set_float32_matmul_precision", f"got {precision!r}", expected="'highest', 'high' or 'medium'")
        )
    settings.precision = precision


def get_float32_matmul_precision() -> Precision:
    """The precision in force."""
    return settings.precision


@contextmanager
def float32_matmul_precision(precision: Precision) -> Iterator[None]:
    """Use `precision` inside the block, in the whole process. Raises PrecisionError."""
    before = settings.precision
    set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        settings.precision = before
