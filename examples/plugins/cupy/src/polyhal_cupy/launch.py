"""Launches: kernels with arguments in the kernel's order, bound to constants and to positions in the argument list of an op.

Handles are device addresses, so a kernel receives both a tensor and a workspace as one pointer to the first element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.backends.common.launching.kernel_arguments import Bound, Constant, Number, bind
from polyhal.backends.common.launching.kernel_signature import NUMPY_TYPES, KernelSignature
from polyhal.backends.common.launching.launch import Arguments, Table, Tensor, Workspace

if TYPE_CHECKING:
    from polyhal_cupy.runtime import Runtime


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel's function on the device, and its parameters."""

    function: Any
    signature: KernelSignature

    @property
    def struct(self) -> np.dtype[np.void]:
        """Layout of the first parameter, a struct passed by value."""
        return self.signature.structs[self.signature.parameters[0].name]


def address(argument: Any) -> int:
    """Return the device address of a workspace, or of the first element of a Ref."""
    if type(argument) is int:
        return argument
    return argument.handle + argument.offset * argument.spec.dtype.itemsize  # type: ignore[no-any-return]


def _upload(table: Table) -> Any:
    """Copy a table to the memory of the current device."""
    import cupy

    return cupy.asarray(np.array(table.values or (0,), np.int32))


class ArgumentValues:
    """Values of a kernel's parameters, from the arguments of an op."""

    __slots__ = ("_numbers", "_pointers", "_tables", "_template")

    def __init__(self, parameters: Sequence[Bound]) -> None:
        self._template: list[Any] = [None] * len(parameters)
        self._pointers: list[tuple[int, int]] = []
        self._tables: list[Any] = []
        """Arrays that the launch keeps alive."""
        self._numbers: list[tuple[int, int, Callable[[Any], Any]]] = []
        for place, p in enumerate(parameters):
            if isinstance(p, Tensor | Workspace):
                self._pointers.append((place, p.index))
            elif isinstance(p, Number):
                self._numbers.append((place, p.index, _CONVERTERS[p.type]))
            elif isinstance(p, Table):
                self._tables.append(_upload(p))
                self._template[place] = self._tables[-1].data.ptr
            elif isinstance(p, Constant):
                self._template[place] = NUMPY_TYPES[p.type](p.value)
            else:
                raise TypeError(f"launches on CUDA do not pass {p!r}")

    def values(self, args: Sequence[Any]) -> list[Any]:
        """Return one value per parameter."""
        values = self._template.copy()
        for place, index in self._pointers:
            values[place] = address(args[index])
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
        parameters: Sequence[Bound],
        blocks: int,
        threads: int,
        workspace: tuple[int, ...] = (),
    ) -> None:
        """Prepare a launch. `parameters` are in the kernel's order; `workspace` is in bytes."""
        self._runtime = runtime
        self.name = name
        self.workspace = workspace
        self._function = function
        self._blocks = (blocks,)
        self._threads = (threads,)
        self._arguments = ArgumentValues(parameters)

    def __call__(self, *args: Any) -> None:
        values = self._arguments.values(args)
        self._runtime.enqueue(self.name, self._function, self._blocks, self._threads, values)


def _wrapped(bits: int, signed: bool) -> Callable[[Any], np.generic]:
    """Return a converter that wraps integers modulo 2^bits, as in C; NumPy would raise."""
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
    """One launch of a kernel whose first parameter is a struct of addresses, passed by value and filled at every call."""

    __slots__ = ("_arguments", "_blocks", "_fill", "_function", "_runtime", "_threads", "name", "workspace")

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        kernel: LoadedKernel,
        fill: Callable[[Sequence[Any]], np.ndarray],
        args: Arguments,
        blocks: int,
        threads: int,
    ) -> None:
        """Prepare a launch.

        `fill` returns the struct, of layout `kernel.struct`, for the arguments of a call; `args` binds the others.

        Raises KernelArgumentError if `args` do not fit the kernel.
        """
        others = replace(kernel.signature, parameters=kernel.signature.parameters[1:])
        self._runtime = runtime
        self.name = name
        self.workspace: tuple[int, ...] = ()
        self._function = kernel.function
        self._fill = fill
        self._arguments = ArgumentValues(bind(others, args, offsets=False))
        self._blocks = (blocks,)
        self._threads = (threads,)

    def __call__(self, *args: Any) -> None:
        values = [self._fill(args), *self._arguments.values(args)]
        self._runtime.enqueue(self.name, self._function, self._blocks, self._threads, values)
