"""Launches: kernels bound to constants and to positions in the argument list of an op.

Handles are device addresses, so a tensor and a workspace both arrive in a kernel as one pointer to the first element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.backends.common.launching.launch import Constant, Number, Tensor, Workspace

if TYPE_CHECKING:
    from polyhal_cupy.runtime import Runtime

_NUMPY: dict[str, type[np.generic]] = {
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
    "float": np.float32,
    "double": np.float64,
}


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of argument `index`, a Ref or a workspace, plus `offset` bytes."""

    index: int
    offset: int = 0


Parameter = Pointer | Number | Constant


def ints(*values: int) -> list[Parameter]:
    """Return 32-bit signed constants."""
    return [Constant(v, "int") for v in values]


def uints(*values: int) -> list[Parameter]:
    """Return 32-bit unsigned constants."""
    return [Constant(v, "uint") for v in values]


def longs(*values: int) -> list[Parameter]:
    """Return 64-bit signed constants."""
    return [Constant(v, "long") for v in values]


def ulongs(*values: int) -> list[Parameter]:
    """Return 64-bit unsigned constants."""
    return [Constant(v, "ulong") for v in values]


def pointers(*indices: int) -> list[Parameter]:
    """Return pointers to whole arguments."""
    return [Pointer(i) for i in indices]


def address(argument: Any) -> int:
    """Return the device address of a workspace, or of the first element of a Ref."""
    if type(argument) is int:
        return argument
    return argument.handle + argument.offset * argument.spec.dtype.itemsize  # type: ignore[no-any-return]


class Arguments:
    """The values of a kernel's parameters, from the arguments of an op."""

    __slots__ = ("_numbers", "_pointers", "_template")

    def __init__(self, parameters: Sequence[Parameter | Tensor | Workspace]) -> None:
        placed = list(enumerate(parameters))
        self._pointers = [
            (place, p.index, p.offset if isinstance(p, Pointer) else 0)
            for place, p in placed
            if isinstance(p, Pointer | Tensor | Workspace)
        ]
        self._numbers = [(place, p.index, _CONVERTERS[p.type]) for place, p in placed if isinstance(p, Number)]
        self._template = [_NUMPY[p.type](p.value) if isinstance(p, Constant) else None for p in parameters]

    def values(self, args: Sequence[Any]) -> list[Any]:
        """Return one value per parameter."""
        values: list[Any] = self._template.copy()
        for place, index, offset in self._pointers:
            values[place] = address(args[index]) + offset
        for place, index, convert in self._numbers:
            values[place] = convert(args[index])
        return values


class KernelLaunch:
    """One launch of one kernel. Satisfies `polyhal.hal.protocol.Launch`."""

    __slots__ = ("_arguments", "_blocks", "_function", "_runtime", "_threads", "name", "workspace")

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        function: Any,
        parameters: Sequence[Parameter],
        blocks: int,
        threads: int,
        workspace: tuple[int, ...] = (),
    ) -> None:
        """`workspace` is in bytes."""
        self._runtime = runtime
        self.name = name
        self.workspace = workspace
        self._function = function
        self._blocks = (blocks,)
        self._threads = (threads,)
        self._arguments = Arguments(parameters)

    def __call__(self, *args: Any) -> None:
        values = self._arguments.values(args)
        self._runtime.enqueue(self.name, self._function, self._blocks, self._threads, values)


def _wrapped(bits: int, signed: bool) -> Callable[[Any], np.generic]:
    """Return a converter that wraps integers modulo 2^bits, as C does; NumPy would raise."""
    kind = np.dtype(f"{'int' if signed else 'uint'}{bits}").type
    low, span = -(1 << (bits - 1)) if signed else 0, 1 << bits
    return lambda value: kind((int(value) - low) % span + low)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "int": _wrapped(32, True),
    "uint": _wrapped(32, False),
    "long": _wrapped(64, True),
    "ulong": _wrapped(64, False),
    "float": np.float32,
    "double": np.float64,
}


class StructLaunch:
    """One launch of a kernel whose first parameter is a struct, built from the arguments of each call."""

    __slots__ = ("_blocks", "_function", "_make", "_runtime", "_threads", "name", "workspace")

    def __init__(
        self, runtime: Runtime, name: str, function: Any, make: Callable[..., list[Any]], blocks: int, threads: int
    ) -> None:
        self._runtime = runtime
        self.name = name
        self.workspace: tuple[int, ...] = ()
        self._function = function
        self._make = make
        self._blocks = (blocks,)
        self._threads = (threads,)

    def __call__(self, *args: Any) -> None:
        self._runtime.enqueue(self.name, self._function, self._blocks, self._threads, self._make(*args))
