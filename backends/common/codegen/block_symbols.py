"""Weights of quantised blocks as expressions of a block's bytes: the arithmetic of `hal.quantization` on symbols.

A format's own `decode` runs on arrays of these expressions, so that kernels are derived from the declaration of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyhal.hal.quantization.block_format import BlockFormat

BlockExpressions = NDArray[np.object_]
"""Expressions."""


@dataclass(frozen=True, slots=True)
class BlockExpression:
    """An expression. Operators build further ones; operands that are numbers become constants."""

    def __add__(self, other: BlockExpression | float) -> BlockExpression:
        return Binary("+", self, _expression(other))

    def __sub__(self, other: BlockExpression | float) -> BlockExpression:
        return Binary("-", self, _expression(other))

    def __mul__(self, other: BlockExpression | float) -> BlockExpression:
        return Binary("*", self, _expression(other))


@dataclass(frozen=True, slots=True)
class BlockConstant(BlockExpression):
    """A number."""

    value: float


@dataclass(frozen=True, slots=True)
class Byte(BlockExpression):
    """A byte of a field, as an unsigned integer."""

    field: int
    """First byte of the field in a block."""
    index: int


@dataclass(frozen=True, slots=True)
class Bits(BlockExpression):
    """`operand` after an operation on integers: masked with a number, or shifted right or left by a number of places."""

    operation: str
    """One of "&", ">>" and "<<"."""
    operand: BlockExpression
    number: int


@dataclass(frozen=True, slots=True)
class Binary(BlockExpression):
    """A sum, difference or product, of integers or of floats."""

    operation: str
    left: BlockExpression
    right: BlockExpression


@dataclass(frozen=True, slots=True)
class Signed(BlockExpression):
    """A byte as an integer of two's complement."""

    byte: BlockExpression


@dataclass(frozen=True, slots=True)
class Float(BlockExpression):
    """An integer as a float."""

    integer: BlockExpression


@dataclass(frozen=True, slots=True)
class Half(BlockExpression):
    """The float16 number that fills a field."""

    field: int


@dataclass(frozen=True, slots=True)
class Power(BlockExpression):
    """2 to the power of a byte minus 128."""

    byte: BlockExpression


@dataclass(frozen=True, slots=True)
class Lookup(BlockExpression):
    """The number of a table at an index."""

    table: tuple[float, ...]
    index: BlockExpression


def _expression(x: BlockExpression | float) -> BlockExpression:
    return x if isinstance(x, BlockExpression) else BlockConstant(float(x))


def _each(function: Callable[[Any], BlockExpression], x: NDArray[Any]) -> BlockExpressions:
    out = np.empty(x.shape, object)
    for at in np.ndindex(x.shape):
        out[at] = function(x[at])
    return out


class SymbolicArithmetic:
    """Implements `hal.quantization.block_format.BlockArithmetic` on arrays of expressions."""

    def masked(self, x: Any, bits: int) -> Any:
        return _each(lambda e: Bits("&", e, bits), x)

    def right(self, x: Any, places: int) -> Any:
        return _each(lambda e: Bits(">>", e, places), x)

    def left(self, x: Any, places: int) -> Any:
        return _each(lambda e: Bits("<<", e, places), x)

    def part(self, x: Any, first: int, last: int) -> Any:
        return x[..., first:last]

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.reshape(shape)

    def stack(self, arrays: Sequence[Any], axis: int) -> Any:
        return np.stack(arrays, axis)

    def floats(self, x: Any) -> Any:
        return _each(Float, x)

    def signed_bytes(self, x: Any) -> Any:
        return _each(Signed, x)

    def halfs(self, x: Any) -> Any:
        if x.shape[-1] != 2:
            raise NotImplementedError(f"a field of {x.shape[-1] // 2} halfs; kernels read one")
        return _each(lambda e: Half(e.field), x[..., :1])

    def powers(self, x: Any) -> Any:
        return _each(Power, x)

    def looked_up(self, table: tuple[float, ...], x: Any) -> Any:
        return _each(lambda e: Lookup(tuple(table), e), x)


def weights_of_a_block(form: BlockFormat) -> list[BlockExpression]:
    """Return the weights of a block as expressions."""
    fields, first = {}, 0
    for name, size in form.fields:
        fields[name] = _each(partial(Byte, first), np.array(range(size), object))
        first += size
    return list(form.decode(SymbolicArithmetic(), fields).reshape(-1))
