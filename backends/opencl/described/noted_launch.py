"""Launches that a described device would run, checked against its limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from polyhal.backends.common.launching.kernel_arguments import Bound, Constant, Number, Struct
from polyhal.backends.common.launching.kernel_signature import NUMPY_TYPES
from polyhal.backends.common.launching.launch import LocalMemory, Tensor
from polyhal.backends.opencl.described.description import DescribedDevice

_POINTER = 8
"""Bytes of a pointer. All described devices have 64-bit addresses."""


@dataclass(frozen=True, slots=True)
class NotedLaunch:
    """One kernel of one program, as it would be launched."""

    file: str
    kernel: str
    definitions: tuple[tuple[str, str | int | bool], ...]
    options: tuple[str, ...]
    """Compiler options."""
    text: str
    """Text of the program."""
    group: tuple[int, ...]
    local_memory: int
    """Bytes of local memory: the kernel's own arrays and its local arguments."""
    argument_bytes: int

    def violations(self, device: DescribedDevice) -> Iterator[str]:
        """Yield a description of each limit of a device that the launch exceeds."""
        size, most = prod(self.group), device.max_work_group_size
        if size > most:
            yield f"a group of {size} work-items, where the device takes {most}"
        axes = zip(self.group, device.max_work_item_sizes, strict=False)
        if any(n > limit for n, limit in axes):
            yield f"a group of {self.group}, where the device takes {device.max_work_item_sizes} per axis"
        if self.local_memory > device.local_mem_size:
            yield f"{self.local_memory} bytes of local memory, where the device has {device.local_mem_size}"
        if self.argument_bytes > device.max_parameter_size:
            yield f"{self.argument_bytes} bytes of arguments, where the device takes {device.max_parameter_size}"


def argument_bytes(parameters: Sequence[Bound]) -> int:
    """Return the bytes of a kernel's arguments, each aligned to its size and structs to 8 bytes."""
    at = 0
    for parameter in parameters:
        for size in _sizes(parameter):
            alignment = min(size, _POINTER)
            at = -(-at // alignment) * alignment + size
    return at


def dynamic_local_memory(parameters: Sequence[Bound]) -> int:
    """Return the bytes of local memory that are passed as arguments."""
    return sum(p.nbytes for p in parameters if isinstance(p, LocalMemory))


def _sizes(parameter: Bound) -> tuple[int, ...]:
    if isinstance(parameter, Tensor):  # memory and its offset, a ulong
        return _POINTER, _POINTER
    if isinstance(parameter, (Number, Constant)):
        return (np.dtype(NUMPY_TYPES[parameter.type]).itemsize,)
    return (len(parameter.data),) if isinstance(parameter, Struct) else (_POINTER,)
