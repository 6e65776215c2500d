"""Kernels over several tensors at once: their addresses travel in a struct by value, as many as a launch's parameters hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.multi_tensor import KernelArgument, MultiTensorKernel, TensorSlot
from polyhal_cupy.dialect import type_name
from polyhal_cupy.launch import Arguments, StructLaunch, address
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_CHUNK = 4096
_PARAMETER_BYTES = 4096
"""What every CUDA device takes as parameters of one kernel."""
_OTHER_BYTES = 128
_BYTES_PER_SLOT = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """The slots of one launch."""

    slots: tuple[TensorSlot, ...]
    starts: tuple[int, ...]
    chunks: int


def capacity(operands: int) -> int:
    """How many slots of so many operands one launch takes."""
    return (_PARAMETER_BYTES - _OTHER_BYTES) // (8 * operands + _BYTES_PER_SLOT)


def batches(slots: Sequence[TensorSlot]) -> list[Batch]:
    """Launches that cover the slots."""
    out = []
    most = capacity(len(slots[0].tensors))
    for at in range(0, len(slots), most):
        part = tuple(slots[at : at + most])
        starts = [0]
        for slot in part:
            starts.append(starts[-1] + ceil_div(slot.size, _CHUNK))
        out.append(Batch(part, tuple(starts[:-1]), starts[-1]))
    return out


def launch(
    runtime: Runtime, source: str, kernel: MultiTensorKernel, batch: Batch, more: Sequence[KernelArgument]
) -> StructLaunch:
    """A launch whose kernel, of kernels/`source`.cu, takes the struct and then these parameters."""
    operands = len(kernel.operands)
    most = capacity(operands)
    struct = np.dtype(
        [("addresses", np.uint64, (operands, most)), ("sizes", np.uint32, most), ("starts", np.uint32, most)]
    )
    blank = np.zeros((), struct)
    blank["starts"] = batch.chunks
    blank["sizes"][: len(batch.slots)] = [s.size for s in batch.slots]
    blank["starts"][: len(batch.slots)] = batch.starts
    places = [[s.tensors[operand].index for s in batch.slots] for operand in range(operands)]
    rest = Arguments(more)

    def make(*args: Any) -> list[Any]:
        given = blank.copy()
        given["addresses"][:, : len(batch.slots)] = [[address(args[i]) for i in row] for row in places]
        return [given, *rest.values(args)]

    built = {"REAL": type_name(kernel.real), "SLOTS": most, "CHUNK": _CHUNK, "BLOCK": _BLOCK, **kernel.definitions}
    function = runtime.function(source, built, kernel.name)
    return StructLaunch(runtime, kernel.name, function, make, batch.chunks, _BLOCK)
