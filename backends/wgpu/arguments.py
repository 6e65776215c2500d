"""Binding of named arguments to the buffers of a shader and to the members of its struct `Parameters`.

The member `o_x` is the offset of the buffer `x` in elements. A `Tensor` bound to `x` sets it at every call; for a
`Workspace` it is 0 unless `o_x` is passed explicitly.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.kernel_arguments import ArgumentBinder, Constant, Number
from polyhal.backends.common.launching.kernel_signature import KernelParameter, KernelSignature
from polyhal.backends.common.launching.launch import Arguments, ScalarType, Table, Tensor, Workspace

_OFFSET = "o_"


@dataclass(frozen=True, slots=True)
class Offset:
    """Offset of the tensor at `binding`."""

    binding: int


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """Values of the bindings and of the members of `Parameters`, both in the shader's order."""

    buffers: tuple[Tensor | Workspace, ...]
    tables: tuple[Table, ...]
    """Tables, bound after all buffers."""
    members: tuple[Offset | Number | Constant, ...]


def bind(signature: KernelSignature, args: Arguments) -> BoundArguments:
    """Bind every parameter of a shader by name. Raises KernelArgumentError if `args` do not fit.

    Unsigned members accept any integer modulo their size, because negative strides wrap.
    """
    return _ShaderBinder(signature, args).bound()


class _ShaderBinder(ArgumentBinder):
    """Binder for one launch."""

    def bound(self) -> BoundArguments:
        parameters = self.signature.parameters
        buffers: dict[str, Tensor | Workspace] = {}
        tables: list[Table] = []
        for p in parameters:
            if p.kind == "global":
                value = self._buffer(p)
                if isinstance(value, Table):
                    tables.append(value)
                elif tables:
                    raise self.error(p.name, "follows a table", "tables to be bound last")
                else:
                    buffers[p.name] = value
        bindings = {_OFFSET + name: binding for binding, name in enumerate(buffers)}
        members: list[Offset | Number | Constant] = []
        for p in parameters:
            if p.kind == "global":
                continue
            binding = bindings.get(p.name)
            if binding is None:
                members.append(self.scalar(p, self.take(p)))
            elif isinstance(buffers[p.name.removeprefix(_OFFSET)], Tensor):
                members.append(Offset(binding))
            else:
                members.append(self.scalar(p, self.args.pop(p.name, 0)))
        for name, buffer in buffers.items():
            if isinstance(buffer, Tensor) and _OFFSET + name not in self.signature.names:
                raise self.error(name, "is a tensor", f"a member {_OFFSET}{name}: u32 of Parameters")
        self.check_all_taken()
        return BoundArguments(tuple(buffers.values()), tuple(tables), tuple(members))

    def fits(self, value: float, kind: ScalarType) -> bool:
        return isinstance(value, int) if kind in ("uint", "ulong") else super().fits(value, kind)

    def _buffer(self, parameter: KernelParameter) -> Tensor | Workspace | Table:
        value = self.take(parameter)
        if isinstance(value, (Tensor, Workspace, Table)):
            return value
        raise self.error(parameter.name, f"is {value!r}", "a tensor or workspace")
