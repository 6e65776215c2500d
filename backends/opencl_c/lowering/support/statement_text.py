"""Generated statements of a kernel, and numbers that they read from a struct. Implements `StatementWriter`."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.launching.launch import Argument, ScalarType
from polyhal.backends.opencl_c.dialect import OpenCLDialect, convert, narrow, type_name
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

_EIGHT_BYTES = ("long", "ulong", "double")


@dataclass(slots=True)
class StatementText:
    """Statements and the arguments that they need (see `backends.common.codegen.statements`).

    Numbers known when the launch is built become members of one struct, so that a kernel with many of them has few
    parameters.
    """

    dialect: OpenCLDialect = field(default_factory=OpenCLDialect)
    args: dict[str, Argument] = field(default_factory=dict)
    numbers: dict[str, ScalarType] = field(default_factory=dict)
    """Members of the struct, by name."""
    compute: list[str] = field(default_factory=list)

    def constant(self, name: str, type_: ScalarType, value: int | float) -> None:
        """Add a number known when the launch is built; the kernel reads it as a variable of that name."""
        self.numbers[name] = type_
        self.args[name] = value

    def members(self) -> str:
        """Return the declarations of the struct's members, those of eight bytes first: the struct has no padding."""
        return " ".join(f"{type_} {name};" for name, type_ in self._ordered())

    def unpack(self, struct: str) -> str:
        """Return the declarations of variables for the members of a parameter `struct`."""
        return " ".join(f"const {type_} {name} = {struct}.{name};" for name, type_ in self._ordered())

    def convert(self, register: str, source: DType, target: DType) -> str:
        return convert(register, source, target)

    def narrow(self, register: str, dtype: DType) -> str:
        return narrow(register, dtype)

    def rounded(self, register: str, dtype: DType) -> str:
        return f"rounded_to_{dtype.name}({register})"

    def declare(self, name: str, dtype: DType, expression: str) -> None:
        self.compute.append(f"const VEC({type_name(register_class(dtype))}) {name} = {expression};")

    def parameter(self, name: str, value: float, dtype: DType) -> str:
        type_: ScalarType = "double" if dtype is dtypes.float64 else "float"
        self.constant(name, type_, value)
        return f"(VEC({type_}))({name})"

    def _ordered(self) -> list[tuple[str, ScalarType]]:
        return sorted(self.numbers.items(), key=lambda member: member[1] not in _EIGHT_BYTES)
