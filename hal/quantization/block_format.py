"""Formats of quantised weights as blocks of bytes, each with the fields from which its weights are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class BlockArithmetic(Protocol):
    """Functions of integers and float32 in which formats are decoded: in NumPy, or as ops of a device.

    Integers are int32 of at most 16 bits and not negative unless a decoder makes them so. Operands are arrays that also have
    `+`, `-`, `*` and `shape`.
    """

    def masked(self, x: Any, bits: int) -> Any:
        """`x & bits`."""

    def right(self, x: Any, places: int) -> Any:
        """`x >> places`."""

    def left(self, x: Any, places: int) -> Any:
        """`x << places`."""

    def part(self, x: Any, first: int, last: int) -> Any:
        """`x[..., first:last]`."""

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        """Return the elements in another shape."""

    def stack(self, arrays: Sequence[Any], axis: int) -> Any:
        """Arrays along a new axis."""

    def floats(self, x: Any) -> Any:
        """Integers as float32."""

    def signed_bytes(self, x: Any) -> Any:
        """Bytes as integers of two's complement."""

    def halfs(self, x: Any) -> Any:
        """Pairs of bytes (..., 2n), the low one first, as float32 of the float16 that they are (..., n)."""

    def powers(self, x: Any) -> Any:
        """Bytes as float32 powers of two: 2^(x - 128)."""

    def looked_up(self, table: tuple[float, ...], x: Any) -> Any:
        """`table[x]` as float32."""


Fields = Mapping[str, Any]
"""The bytes of each field of a row of blocks, (..., blocks, bytes of the field), as int32."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockFormat:
    """A format of quantised weights, named as GGUF names it, in lower case."""

    name: str
    block: int
    """Weights of a block."""
    fields: tuple[tuple[str, int], ...]
    """Name and bytes of each field, in the order of a file."""
    decode: Callable[[BlockArithmetic, Fields], Any]
    """From fields to float32 weights (..., blocks, block)."""
    encode: Callable[[np.ndarray], dict[str, np.ndarray]]
    """From float32 weights (blocks, block) to the bytes of the fields, (blocks, bytes) each."""

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return sum(size for _, size in self.fields)

    @property
    def bits(self) -> float:
        """Bits per weight."""
        return self.block_bytes * 8 / self.block

    def row_bytes(self, weights: int) -> int:
        """Bytes of a row with this number of weights. Raises ValueError unless they fill blocks."""
        if weights % self.block:
            raise ValueError(f"a row of {weights} weights in {self.name}; expected a multiple of {self.block}")
        return weights // self.block * self.block_bytes

    def row_weights(self, size: int) -> int:
        """Weights in a row with this number of bytes. Raises ValueError unless they are whole blocks."""
        if size % self.block_bytes:
            raise ValueError(f"a row of {size} bytes in {self.name}; expected a multiple of {self.block_bytes}")
        return size // self.block_bytes * self.block

    def weights(self, arithmetic: BlockArithmetic, rows: Any) -> Any:
        """Decode rows of bytes (..., row bytes), int32, to weights (..., weights)."""
        *lead, size = rows.shape
        count = self.row_weights(size)
        blocks = arithmetic.reshape(rows, (*lead, size // self.block_bytes, self.block_bytes))
        fields, first = {}, 0
        for name, width in self.fields:
            fields[name] = arithmetic.part(blocks, first, first + width)
            first += width
        return arithmetic.reshape(self.decode(arithmetic, fields), (*lead, count))
