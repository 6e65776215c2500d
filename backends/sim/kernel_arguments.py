"""Kernel arguments: a block of host memory that the dispatch packet points to (HSA's "kernarg segment").

An argument has 16 bytes: its kind, then its value. Tensors are passed by the device address of their first element; shapes and
strides are constants of the kernel.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from polyhal.hal.layout import Ref

ARGUMENT_BYTES = 16
_KIND = struct.Struct("<Q")
_CODES = ("8x", "Q", "q", "Q", "d", "Q")
"""`struct` format of the value, by kind."""
_INT64_MAX = (1 << 63) - 1


class ArgumentKind(enum.IntEnum):
    """The first word of an argument."""

    ABSENT = 0
    """An omitted optional input."""
    ADDRESS = 1
    INT = 2
    UINT = 3
    FLOAT = 4
    BOOL = 5


def encode_arguments(values: Sequence[Any]) -> bytearray:
    """Encode references, numbers, None and bare addresses (of workspace) for the device."""
    codes, words = ["<"], []
    for value in values:
        kind, word = _encode(value)
        codes.append("Q" + _CODES[kind])
        words.append(kind)
        if kind:
            words.append(word)
    return bytearray(struct.pack("".join(codes), *words))


def _encode(value: Any) -> tuple[int, Any]:
    if isinstance(value, Ref):
        start = value.handle or 0  # a tensor without elements has no memory
        return ArgumentKind.ADDRESS, start + value.offset * value.spec.dtype.itemsize
    if value is None:
        return ArgumentKind.ABSENT, 0
    if isinstance(value, bool):
        return ArgumentKind.BOOL, int(value)
    if isinstance(value, int):
        return (ArgumentKind.UINT if value > _INT64_MAX else ArgumentKind.INT), value
    return ArgumentKind.FLOAT, float(value)


def patch_argument(block: bytearray, start: int, value: Any) -> None:
    """Replace the argument at byte `start` of a block."""
    block[start : start + ARGUMENT_BYTES] = encode_arguments([value])


def decode_arguments(block: memoryview, count: int) -> Iterator[tuple[ArgumentKind, Any]]:
    """Yield kind and value of each argument."""
    for start in range(0, count * ARGUMENT_BYTES, ARGUMENT_BYTES):
        kind = ArgumentKind(_KIND.unpack_from(block, start)[0])
        if kind is ArgumentKind.ABSENT:
            yield kind, None
            continue
        value = struct.unpack_from("<" + _CODES[kind], block, start + 8)[0]
        yield kind, bool(value) if kind is ArgumentKind.BOOL else value
