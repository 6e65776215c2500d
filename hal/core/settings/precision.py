"""Precision of float32 matrix products: the user's choice between accuracy and tensor cores.

A setting of the process, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from polyhal.hal.core.settings.state import Precision, settings
from polyhal.hal.errors import PolyhalError, message

_PRECISIONS = get_args(Precision)


class PrecisionError(PolyhalError, ValueError):
    """An unknown precision was requested."""


def set_float32_matmul_precision(precision: Precision) -> None:
    """Set the precision of float32 products in matmul, linear, convolution and attention; other dtypes are not affected.

    `highest`, the default, is float32 throughout. `high` may split each operand into parts for tensor cores, with an
    error of at most twice the error of `highest`. `medium` may round the operands to TF32 or bfloat16, 11 and 8
    significant bits. Sums are float32 in all of them. A device without such units computes `highest`. Raises
    PrecisionError.
    """
    if precision not in _PRECISIONS:
        raise PrecisionError(
            message("set_float32_matmul_precision", f"got {precision!r}", expected="'highest', 'high' or 'medium'")
        )
    settings.precision = precision


def get_float32_matmul_precision() -> Precision:
    """Return the current precision."""
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
