"""Random 32-bit words as unsigned numbers, on devices with and without uint32: the results have the same bits."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.hal.errors import UnsupportedDTypeError, message
from polyhal.hal.ops.random.philox import shifted_right
from polyhal.tensor import Tensor


def remainders(words: Tensor, span: int) -> Tensor:
    """Return `words` modulo `span` (1 to 2**32 - 1). Words are uint32, or int32 with the bits of uint32.

    The words may be overwritten. Raises UnsupportedDTypeError for a span of 2**31 or more if they are int32.
    """
    if words.dtype is dtypes.uint32:
        return words.remainder_(span)  # in place: the words are most of the memory that is needed
    if span >= 1 << 31:
        problem, fix = f"a range of {span} integers, and no uint32 on this device", "take less than 2**31"
        raise UnsupportedDTypeError(message("randint", problem, fix=fix, device=words.device))
    half = ops.remainder(shifted_right(words, 1), span)
    least = half - (span - half)  # twice the half, less the span: neither overflows
    doubled = ops.where(least < 0, half + half, least)
    result = doubled + ops.bitwise_and(words, 1)
    return ops.where(result == span, 0, result)


def as_float32(words: Tensor) -> Tensor:
    """Return `words` rounded to float32. Words are uint32, or int32 with the bits of uint32."""
    if words.dtype is dtypes.uint32:
        return words.to(dtypes.float32)
    high: Tensor = shifted_right(words, 16).to(dtypes.float32)
    return high * 65536.0 + ops.bitwise_and(words, 0xFFFF).to(dtypes.float32)


__all__ = ["as_float32", "remainders"]
