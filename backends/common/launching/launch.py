"""Bindings of kernel parameters, and sequences of launches, for every shader language.

`index` is a position in the argument list of a launch: inputs, outputs, workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from polyhal.hal.protocol import Launch, SimpleLaunch

ScalarType = Literal["int", "uint", "long", "ulong", "float", "double"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """Argument `index`, a Ref: its memory, and its offset in elements, because views start anywhere inside a buffer."""

    index: int
    start: int = 0
    """Elements between the tensor's and the kernel's first element. Only supported by launches of OpenCL."""
    early: bool = False
    """True if the kernel may read it before its inputs are complete (shaders/opencl/lib/dependent_launch.h)."""
    read_only: bool = False
    """True if the kernel declares it as a pointer to constants; set when it is bound."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Argument `index`, a handle of temporary memory."""

    index: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """Argument `index`, a Python number: a scalar parameter, in the type that the kernel declares."""

    index: int


@dataclass(frozen=True, slots=True)
class LocalMemory:
    """Local memory of a work-group, in bytes."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class Table:
    """Constants in memory that lives as long as the launch: integers of 32 bits, or the bytes of numbers of other types."""

    values: tuple[int, ...] | bytes

    def words(self) -> np.ndarray:
        """Return the constants as words of 32 bits; one word if there are none."""
        if isinstance(self.values, bytes):
            return np.frombuffer(self.values or bytes(4), np.int32)
        return np.array(self.values or (0,), np.int32)


@dataclass(frozen=True, slots=True)
class Strided:
    """Memory with its strides: as the argument `x` it binds `x`, `x_offset` and, for each name of a stride, `x_NAME`."""

    memory: Tensor | Workspace
    strides: Mapping[str, int | tuple[int, ...]]


Argument = Tensor | Workspace | Strided | Table | LocalMemory | Scalar | int | float | tuple[int, ...]
"""Argument of a named kernel parameter. Numbers are converted to the declared type; tuples fill arrays in structs."""
Arguments = Mapping[str, Argument]


def early(argument: Argument) -> Argument:
    """Return the argument of a kernel that may read it before its inputs are complete."""
    if isinstance(argument, Strided) and isinstance(argument.memory, Tensor):
        return replace(argument, memory=replace(argument.memory, early=True))
    return replace(argument, early=True) if isinstance(argument, Tensor) else argument


def joint_name(steps: Sequence[Callable[..., None]]) -> str:
    """Return the distinct names of several launches, in order. Plain functions have no name."""
    names = (name for step in steps if isinstance(step, Launch) for name in step.name.split(", "))
    return ", ".join(dict.fromkeys(names))


class LaunchSequence:
    """Several launches as one, with their joint name. All receive the same argument list, including workspace."""

    __slots__ = ("_steps", "name", "workspace")

    def __init__(self, steps: Sequence[Callable[..., None]], workspace: tuple[int, ...] = ()) -> None:
        self.name = joint_name(steps)
        self._steps = tuple(step.run if isinstance(step, SimpleLaunch) else step for step in steps)
        self.workspace = workspace

    def __call__(self, *args: Any) -> None:
        for step in self._steps:
            step(*args)


def as_one(launches: Sequence[Launch], workspace: tuple[int, ...]) -> Launch:
    """Return launches as one that requests `workspace`, in bytes; a single launch without a workspace as it is."""
    return LaunchSequence(launches, workspace) if workspace or len(launches) > 1 else launches[0]


def after_zeros(fill: Launch, launch: Launch, place: int) -> LaunchSequence:
    """Precede `launch` by `fill`, a launch (number, out) that fills argument `place` of `launch` with zeros."""
    zero = SimpleLaunch(fill.name, lambda *args: fill(0, args[place]))
    return LaunchSequence((zero, launch), launch.workspace)
