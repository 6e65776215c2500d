"""Descriptions of recorded launches, from which steps are exported (`polyhal.hal.launch_descriptions`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from polyhal.hal.errors import BackendError, message
from polyhal.hal.launch_descriptions import (
    BytesArgument,
    DescribedLaunch,
    KernelText,
    LaunchArgument,
    LocalArgument,
    MemoryArgument,
    NumberPlace,
)

if TYPE_CHECKING:
    from polyhal.backends.opencl.launch import BoundLaunch
    from polyhal.backends.opencl.program import CompiledKernel


def described(call: int, launch: BoundLaunch) -> DescribedLaunch:
    """Return the description of a launch that the `call`-th call of a recording made.

    Raises BackendError for a kernel that is not compiled from OpenCL C alone.
    """
    grid = tuple(n // g for n, g in zip(launch.items, launch.group, strict=True))
    return DescribedLaunch(call, _kernel(launch.compiled, launch.group), tuple(_arguments(launch)), grid)


def _kernel(compiled: CompiledKernel, group: tuple[int, ...]) -> KernelText:
    origin = compiled.origin
    if origin is None or origin.target is not None:
        problem = "the kernel's binary is changed after its compilation"
        raise BackendError(message(compiled.name, problem, fix="export the step on another device"))
    return KernelText(compiled.name, "opencl-c", compiled.name, origin.text(), " ".join(origin.flags), group)


def _arguments(launch: BoundLaunch) -> Iterator[LaunchArgument]:
    """Yield the arguments in the kernel's order; the offset of a tensor is the argument after its memory."""
    slots = {place: (slot, offset) for place, slot, offset in launch.movables}
    numbers = {place: (number, kind) for place, number, kind in launch.numbers}
    for place, (value, kind) in enumerate(zip(launch.values, launch.compiled.types, strict=True)):
        if place in slots:
            yield MemoryArgument(slots[place][0])
        elif place - 1 in slots:
            yield BytesArgument(_bytes(slots[place - 1][1], kind))
        elif place in numbers:
            number, code = numbers[place]
            yield BytesArgument(bytes(np.dtype(kind).itemsize), (NumberPlace(0, code, number),))
        elif place in launch.tables:
            yield MemoryArgument(None, access="read", constant=launch.tables[place].words().tobytes())
        elif isinstance(value, cl.Buffer):
            yield MemoryArgument(value, nbytes=value.size)
        elif isinstance(value, cl.LocalMemory):
            yield LocalArgument(value.size)
        else:
            yield BytesArgument(value if isinstance(value, bytes) else _bytes(value, kind))


def _bytes(value: Any, kind: Any) -> bytes:
    """Return a number in the type of a kernel's parameter."""
    return np.asarray(value).astype(kind).tobytes()
