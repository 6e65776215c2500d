"""Arguments given by name, checked against a kernel's signature and brought into its order."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np

from polyhal.backends.common.launching.kernel_signature import KernelParameter, KernelSignature, StructMember
from polyhal.backends.common.launching.launch import (
    Argument,
    Arguments,
    Constant,
    LocalMemory,
    Number,
    Scalar,
    ScalarType,
    Strided,
    Table,
    Tensor,
    Workspace,
)
from polyhal.hal.errors import BackendError, message

_RANGES = {
    "int": (-(1 << 31), (1 << 31) - 1), "uint": (0, (1 << 32) - 1), "long": (-(1 << 63), (1 << 63) - 1),
    "ulong": (0, (1 << 64) - 1),
}  # fmt: skip
_OFFSET = "_offset"


class KernelArgumentError(BackendError, TypeError):
    """A launch does not fit the parameters of its kernel."""


@dataclass(frozen=True, slots=True)
class Struct:
    """The bytes of a struct that is passed by value."""

    data: bytes


Bound = Tensor | Workspace | Table | LocalMemory | Number | Constant | Struct
"""What a kernel parameter is bound to; a Tensor stands for the parameter of its offset too."""


def bind(signature: KernelSignature, args: Arguments, *, offsets: bool) -> list[Bound]:
    """What each parameter of a kernel is bound to, in the kernel's order.

    With `offsets`, a Tensor `x` needs a parameter `ulong x_offset` after `x`; other memory begins at 0 where there is one.
    Raises KernelArgumentError.
    """
    return _Binding(signature, args).bound(offsets)


class _Binding:
    """One use of a signature."""

    def __init__(self, signature: KernelSignature, args: Arguments) -> None:
        self._signature = signature
        self._args: dict[str, Argument] = {}
        for name, value in args.items():
            if isinstance(value, Strided):
                self._args[name] = value.memory
                self._args |= {f"{name}_{axis}": stride for axis, stride in value.strides.items()}
            else:
                self._args[name] = value

    def bound(self, offsets: bool) -> list[Bound]:
        found: list[Bound] = []
        parameters = self._signature.parameters
        at = 0
        while at < len(parameters):
            parameter = parameters[at]
            at += 1
            if parameter.kind == "scalar":
                found.append(self._scalar(parameter, self._take(parameter)))
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
                        raise self._error(
                            parameter.name, "is a tensor", f"a parameter ulong {parameter.name}_offset after it"
                        )
                    at += follows
        if self._args:
            raise self._unknown()
        return found

    def _take(self, parameter: KernelParameter | StructMember) -> Argument:
        try:
            return self._args.pop(parameter.name)
        except KeyError:
            raise self._error(parameter.name, "is missing", _described(parameter)) from None

    def _memory(self, parameter: KernelParameter) -> Tensor | Workspace | Table | LocalMemory:
        value = self._take(parameter)
        if parameter.kind == "local" and isinstance(value, LocalMemory):
            return value
        if parameter.kind == "global" and isinstance(value, (Tensor, Workspace, Table)):
            return value
        raise self._error(parameter.name, f"is {value!r}", _described(parameter))

    def _scalar(self, parameter: KernelParameter | StructMember, value: Argument) -> Number | Constant:
        kind = parameter.type
        assert kind is not None
        if isinstance(value, Scalar):
            return Number(value.index, kind)
        if isinstance(value, (Number, Constant)) and value.type == kind:
            return value
        if isinstance(value, (int, float)) and _fits(value, kind):
            return Constant(float(value) if kind in ("float", "double") else int(value), kind)
        raise self._error(parameter.name, f"is {value!r}", _described(parameter))

    def _struct(self, parameter: KernelParameter) -> Struct:
        record = np.zeros((), self._signature.structs[parameter.name])
        for member in parameter.members:
            value = self._take(member)
            values = value if member.length and isinstance(value, (tuple, list)) else (value,)
            if len(values) != max(member.length, 1):
                raise self._error(member.name, f"is {value!r}", _described(member))
            bound = [self._scalar(member, v) for v in values]
            constants = [b.value for b in bound if isinstance(b, Constant)]
            if len(constants) < len(bound):
                raise self._error(
                    member.name, "changes between calls", "a constant, or a parameter outside of the struct"
                )
            record[member.name] = constants if member.length else constants[0]
        return Struct(record.tobytes())

    def _unknown(self) -> KernelArgumentError:
        name = next(iter(self._args))
        known = list(self._signature.names)
        close = difflib.get_close_matches(name, known, 3)
        return self._error(name, "is no parameter of the kernel", " or ".join(close) or f"one of {', '.join(known)}")

    def _error(self, name: str, problem: str, expected: str) -> KernelArgumentError:
        return KernelArgumentError(
            message(
                self._signature.kernel,
                f"the argument {name!r} {problem}",
                expected=expected,
                fix=f"see the kernel's parameters in {self._signature.file}",
            )
        )


def _fits(value: float, kind: ScalarType) -> bool:
    if kind in ("float", "double"):
        return True
    least, most = _RANGES[kind]
    return isinstance(value, int) and least <= value <= most


def _described(parameter: KernelParameter | StructMember) -> str:
    if isinstance(parameter, StructMember) and parameter.length:
        return f"{parameter.length} numbers of the type {parameter.type}"
    if parameter.type is not None:
        return f"a number of the type {parameter.type}"
    return "local memory" if isinstance(parameter, KernelParameter) and parameter.kind == "local" else "memory"
