"""Multi-tensor launches: the addresses of many tensors in one struct passed by value, up to the size limit of parameters."""

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
"""Limit of the parameters of one kernel on every CUDA device."""
_OTHER_BYTES = 128
_BYTES_PER_SLOT = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """The slots of one launch."""

    slots: tuple[TensorSlot, ...]
    starts: tuple[int, ...]
    chunks: int


def capacity(operands: int) -> int:
    """Return the slots that fit in one launch, values the operands per slot."""
    return (_PARAMETER_BYTES - _OTHER_BYTES) // (8 * operands + _BYTES_PER_SLOT)


def batches(slots: Sequence[TensorSlot]) -> list[Batch]:
    """Divide the slots among launches."""
    batched = []
    most = capacity(len(slots[0].tensors))
    for at in range(0, len(slots), most):
        slots_of_launch = tuple(slots[at : at + most])
        starts = [0]
        for slot in slots_of_launch:
            starts.append(starts[-1] + ceil_div(slot.size, _CHUNK))
        batched.append(Batch(slots_of_launch, tuple(starts[:-1]), starts[-1]))
    return batched


def launch(
    runtime: Runtime, source: str, kernel: MultiTensorKernel, batch: Batch, more: Sequence[KernelArgument]
) -> StructLaunch:
    """Return a launch of a kernel of kernels/`source`.cu, whose parameters are the struct and then `more`."""
    operands = len(kernel.operands)
    most = capacity(operands)
    struct = np.dtype(
        [("addresses", np.uint64, (operands, most)), ("sizes", np.uint32, most), ("starts", np.uint32, most)]
    )
    template = np.zeros((), struct)
    template["starts"] = batch.chunks
    template["sizes"][: len(batch.slots)] = [s.size for s in batch.slots]
    template["starts"][: len(batch.slots)] = batch.starts
    places = [[s.tensors[operand].index for s in batch.slots] for operand in range(operands)]
    rest = Arguments(more)

    def make(*args: Any) -> list[Any]:
        values = template.copy()
        values["addresses"][:, : len(batch.slots)] = [[address(args[i]) for i in row] for row in places]
        return [values, *rest.values(args)]

    definitions = {
        "REAL": type_name(kernel.real),
        "SLOTS": most,
        "CHUNK": _CHUNK,
        "BLOCK": _BLOCK,
        **kernel.definitions,
    }
    function = runtime.function(source, definitions, kernel.name)
    return StructLaunch(runtime, kernel.name, function, make, batch.chunks, _BLOCK)
