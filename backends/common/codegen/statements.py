"""The steps of an elementwise group as statements of a shader language: the part of a generator that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from polyhal.backends.common.codegen.elementwise import Step
from polyhal.backends.common.codegen.expressions import Dialect, find, render
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType


@dataclass(frozen=True, slots=True)
class Value:
    """A register. `exact` is False while a small integer may still exceed its range."""

    register: str
    dtype: DType
    exact: bool = True


class Writer(Protocol):
    """How one generator spells and keeps what the steps need."""

    @property
    def dialect(self) -> Dialect: ...

    def convert(self, register: str, source: DType, target: DType) -> str:
        """A register of one dtype as one of another."""

    def narrow(self, register: str, dtype: DType) -> str:
        """A 32-bit register wrapped to the range of a small integer dtype."""

    def declare(self, name: str, dtype: DType, expression: str) -> None:
        """A statement that makes `name` the register of an expression of `dtype`."""

    def parameter(self, name: str, value: float, dtype: DType) -> str:
        """A number that is given with each launch, as an operand beside others of `dtype`."""


def cast(writer: Writer, value: Value, target: DType) -> str:
    """A value as an expression of dtype `target`."""
    register = value.register if value.exact else writer.narrow(value.register, value.dtype)
    return writer.convert(register, value.dtype, target)


def evaluate(writer: Writer, steps: Sequence[Step], inputs: Sequence[Value]) -> list[Value]:
    """The inputs and the result of every step, in the numbering that steps use."""
    values = list(inputs)
    for step in steps:
        values.append(_evaluate(writer, step, values))
    return values


def _evaluate(writer: Writer, step: Step, values: Sequence[Value]) -> Value:
    expression = find(step.op)
    assert expression is not None, step.op
    number, operands = len(values), []
    for place, argument in enumerate(step.arguments):
        wanted = dtypes.bool_ if step.op == "where" and place == 0 else step.dtype
        operand = cast(writer, values[argument], wanted)
        if not operand.isidentifier():
            # A register of its own, so that a template which repeats the operand does not repeat the conversion.
            name = f"a{number}_{place}"
            writer.declare(name, wanted, operand)
            operand = name
        operands.append(operand)
    names = {
        parameter: writer.parameter(f"k{number}_{parameter}", value, step.dtype)
        for parameter, value in zip(expression.params, step.params, strict=True)
    }
    result = dtypes.bool_ if expression.predicate else step.dtype
    writer.declare(f"r{number}", result, render(expression, step.dtype, operands, names, writer.dialect))
    return Value(f"r{number}", result, exact=not result.is_integral or result.itemsize >= 4)
