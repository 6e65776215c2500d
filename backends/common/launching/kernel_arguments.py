"""Binding of named arguments: checked against a kernel's signature and sorted into its order."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

import numpy as np

from polyhal.backends.common.launching.kernel_signature import KernelParameter, KernelSignature, StructMember
from polyhal.backends.common.launching.launch import (
    Argument,
    Arguments,
    LocalMemory,
    Scalar,
    ScalarType,
    Strided,
    Table,
    Tensor,
    Workspace,
)
from polyhal.hal.errors import BackendError, message

_RANGES = {
    "int": (-(1 << 31), (1 << 31) - 1),
    "uint": (0, (1 << 32) - 1),
    "long": (-(1 << 63), (1 << 63) - 1),
    "ulong": (0, (1 << 64) - 1),
}
_OFFSET = "_offset"


class KernelArgumentError(BackendError, TypeError):
    """A launch does not fit the parameters of its kernel."""


@dataclass(frozen=True, slots=True)
class Number:
    """Argument `index` of each call, a Python number passed as a scalar of this type."""

    index: int
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Constant:
    """A scalar of this type, known when the launch is built."""

    value: int | float
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Struct:
    """The bytes of a struct that is passed by value."""

    data: bytes


Bound = Tensor | Workspace | Table | LocalMemory | Number | Constant | Struct
"""Binding of a kernel parameter; a Tensor also binds the parameter of its offset."""


def bind(signature: KernelSignature, args: Arguments, *, offsets: bool) -> list[Bound]:
    """Return the binding of each parameter of a kernel, in the kernel's order.

    With `offsets`, a Tensor `x` must be followed by a parameter `ulong x_offset`; for other memory that parameter is 0.
    Raises KernelArgumentError.
    """
    return _KernelBinder(signature, args).bound(offsets)


class ArgumentBinder:
    """Binds the arguments of one launch by name, and checks each against the signature of its kernel."""

    def __init__(self, signature: KernelSignature, args: Arguments) -> None:
        self.signature = signature
        self.args: dict[str, Argument] = {}
        """Arguments that are not bound yet."""
        for name, value in args.items():
            if isinstance(value, Strided):
                self.args[name] = value.memory
                self.args |= {f"{name}_{axis}": stride for axis, stride in value.strides.items()}
            else:
                self.args[name] = value

    def take(self, parameter: KernelParameter | StructMember) -> Argument:
        """Remove and return the argument of a parameter. Raises KernelArgumentError if it is missing."""
        try:
            return self.args.pop(parameter.name)
        except KeyError:
            raise self.error(parameter.name, "is missing", _described(parameter)) from None

    def scalar(self, parameter: KernelParameter | StructMember, value: Argument) -> Number | Constant:
        """Return a number in the declared type. Raises KernelArgumentError if the value does not fit it."""
        kind = parameter.type
        assert kind is not None
        if isinstance(value, Scalar):
            return Number(value.index, kind)
        if isinstance(value, (int, float)) and self.fits(value, kind):
            return Constant(float(value) if kind in ("float", "double") else int(value), kind)
        raise self.error(parameter.name, f"is {value!r}", _described(parameter))

    def fits(self, value: float, kind: ScalarType) -> bool:
        """Return whether a value may be passed as a scalar of this type."""
        if kind in ("float", "double"):
            return True
        least, most = _RANGES[kind]
        return isinstance(value, int) and least <= value <= most

    def check_all_taken(self) -> None:
        """Raise KernelArgumentError if an argument is not bound."""
        if not self.args:
            return
        name = next(iter(self.args))
        known = list(self.signature.names)
        close = difflib.get_close_matches(name, known, 3)
        raise self.error(name, "is not a parameter of the kernel", " or ".join(close) or f"one of {', '.join(known)}")

    def error(self, name: str, problem: str, expected: str) -> KernelArgumentError:
        """Return the error about an argument."""
        return KernelArgumentError(
            message(
                self.signature.kernel,
                f"the argument {name!r} {problem}",
                expected=expected,
                fix=f"see the kernel's parameters in {self.signature.file}",
            )
        )


class _KernelBinder(ArgumentBinder):
    """Binds the parameters of a kernel in OpenCL C or CUDA C."""

    def bound(self, offsets: bool) -> list[Bound]:
        found: list[Bound] = []
        parameters = self.signature.parameters
        at = 0
        while at < len(parameters):
            parameter = parameters[at]
            at += 1
            if parameter.kind == "scalar":
                found.append(self.scalar(parameter, self.take(parameter)))
            elif parameter.kind == "struct":
                found.append(self._struct(parameter))
            else:
                value = self._memory(parameter)
                found.append(value)
                if offsets and parameter.kind == "global":
                    follows = at < len(parameters) and parameters[at].name == parameter.name + _OFFSET
                    if follows and not isinstance(value, Tensor):
                        found.append(Constant(0, "ulong"))
                    elif not follows and isinstance(value, Tensor):
                        raise self.error(
                            parameter.name, "is a tensor", f"a parameter ulong {parameter.name}_offset after it"
                        )
                    at += follows
        self.check_all_taken()
        return found

    def _memory(self, parameter: KernelParameter) -> Tensor | Workspace | Table | LocalMemory:
        value = self.take(parameter)
        if parameter.kind == "local" and isinstance(value, LocalMemory):
            return value
        if parameter.kind == "global" and isinstance(value, Tensor):
            return replace(value, read_only=parameter.read_only)
        if parameter.kind == "global" and isinstance(value, (Workspace, Table)):
            return value
        raise self.error(parameter.name, f"is {value!r}", _described(parameter))

    def _struct(self, parameter: KernelParameter) -> Struct:
        record = np.zeros((), self.signature.structs[parameter.name])
        for member in parameter.members:
            value = self.take(member)
            values = value if member.length and isinstance(value, (tuple, list)) else (value,)
            if len(values) != max(member.length, 1):
                raise self.error(member.name, f"is {value!r}", _described(member))
            bound = [self.scalar(member, v) for v in values]
            constants = [b.value for b in bound if isinstance(b, Constant)]
            if len(constants) < len(bound):
                raise self.error(
                    member.name, "changes between calls", "a constant, or a parameter outside of the struct"
                )
            record[member.name] = constants if member.length else constants[0]
        return Struct(record.tobytes())


def _described(parameter: KernelParameter | StructMember) -> str:
    if isinstance(parameter, StructMember) and parameter.length:
        return f"{parameter.length} numbers of the type {parameter.type}"
    if parameter.type is not None:
        return f"a number of the type {parameter.type}"
    return "local memory" if isinstance(parameter, KernelParameter) and parameter.kind == "local" else "memory"
