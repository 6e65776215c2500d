"""The steps of an elementwise group as statements of a shader language: the common part of all generators."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from polyhal.backends.common.codegen.elementwise import ExpressionStep
from polyhal.backends.common.codegen.expressions import Dialect, expression_of, render
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType


@dataclass(frozen=True, slots=True)
class RegisterValue:
    """The value of a register. `in_range` is False while a small integer may still exceed the range of its dtype."""

    register: str
    dtype: DType
    in_range: bool = True


class Writer(Protocol):
    """Interface of a generator that formats and collects statements."""

    @property
    def dialect(self) -> Dialect:
        """Dialect of the target language."""

    def convert(self, register: str, source: DType, target: DType) -> str:
        """Return an expression that converts a register between dtypes."""

    def narrow(self, register: str, dtype: DType) -> str:
        """Return an expression that wraps a 32-bit register to the range of a small integer dtype."""

    def rounded(self, register: str, dtype: DType) -> str:
        """Return an expression that rounds a float register to a 16-bit float dtype."""

    def declare(self, name: str, dtype: DType, expression: str) -> None:
        """Append a statement that declares the register `name` with the value of an expression."""

    def parameter(self, name: str, value: float, dtype: DType) -> str:
        """Declare a scalar kernel parameter for operands of `dtype`, and return the expression that reads it."""


def cast(writer: Writer, value: RegisterValue, target: DType) -> str:
    """Return a value as an expression of dtype `target`."""
    register = value.register if value.in_range else writer.narrow(value.register, value.dtype)
    return writer.convert(register, value.dtype, target)


def only_stored(steps: Sequence[ExpressionStep], results: Collection[int]) -> set[int]:
    """Return the results of a group that none of its steps reads."""
    return set(results) - {argument for step in steps for argument in step.arguments}


def evaluate(
    writer: Writer,
    steps: Sequence[ExpressionStep],
    inputs: Sequence[RegisterValue],
    within: Collection[int] = (),
    stored: Collection[int] = (),
) -> list[RegisterValue]:
    """Write the statements of all steps. Return the inputs and the results of steps, by value number.

    Values in `within` are inlined into the only step that uses them, so that compilers may fuse both. Casts to 16-bit floats
    round; for values in `stored`, which nothing reads but stores in their dtype, the stores do so.
    """
    values = list(inputs)
    for step in steps:
        value = _evaluate(writer, step, values, within)
        if step.op == "cast" and len(values) not in stored and _rounds(values[step.arguments[0]].dtype, step.dtype):
            name = f"h{len(values)}"
            writer.declare(name, step.dtype, writer.rounded(value.register, step.dtype))
            value = RegisterValue(name, step.dtype)
        values.append(value)
    return values


def _rounds(source: DType, target: DType) -> bool:
    """Return whether `target` is a 16-bit float that cannot hold all values of `source`; integers of 8 bits are exact."""
    short = target.kind == "float" and target.itemsize == _SHORT
    return short and source is not target and (source.kind == "float" or source.itemsize > 1)


_SHORT = 2
"""Bytes of 16-bit floats, whose registers have 32 bits."""


def _evaluate(
    writer: Writer, step: ExpressionStep, values: Sequence[RegisterValue], within: Collection[int]
) -> RegisterValue:
    expression = expression_of(step.op)
    assert expression is not None, step.op
    number, operands = len(values), []
    for position, argument in enumerate(step.arguments):
        dtype = dtypes.bool_ if step.op == "where" and position == 0 else step.dtype
        operand = cast(writer, values[argument], dtype)
        if not operand.isidentifier() and argument not in within:
            # A separate register, because a template that uses the operand twice would convert it twice.
            name = f"a{number}_{position}"
            writer.declare(name, dtype, operand)
            operand = name
        operands.append(operand)
    names = {
        parameter: writer.parameter(f"k{number}_{parameter}", value, step.dtype)
        for parameter, value in zip(expression.params, step.params, strict=True)
    }
    result = dtypes.bool_ if expression.predicate else step.dtype
    text = render(expression, step.dtype, operands, names, writer.dialect)
    in_range = not result.is_integral or result.itemsize >= 4
    if number in within:
        return RegisterValue(f"({text})", result, in_range)
    writer.declare(f"r{number}", result, text)
    return RegisterValue(f"r{number}", result, in_range)
