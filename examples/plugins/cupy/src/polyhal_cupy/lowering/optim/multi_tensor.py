"""Multi-tensor launches: the addresses of many tensors in one struct passed by value, up to the size limit of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments
from polyhal.backends.common.problems.multi_tensor import MultiTensorKernel, TensorSlot
from polyhal_cupy.dialect import type_name
from polyhal_cupy.launch import StructLaunch, address
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_CHUNK = 4096
_PARAMETER_BYTES = 4096
"""Limit of the parameters of one kernel on every CUDA device."""
_OTHER_BYTES = 128
_BYTES_PER_SLOT = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """Slots of one launch."""

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


def launch(runtime: Runtime, source: str, kernel: MultiTensorKernel, batch: Batch, args: Arguments) -> StructLaunch:
    """Return a launch of a kernel of kernels/`source`.cu, whose parameters are the table of slots and `args`."""
    most = capacity(len(kernel.operands))
    definitions = {
        "REAL": type_name(kernel.real),
        "SLOTS": most,
        "CHUNK": _CHUNK,
        "BLOCK": _BLOCK,
        **kernel.definitions,
    }
    loaded = runtime.kernel(source, definitions, kernel.name)
    template = np.zeros((), loaded.struct)
    template["starts"] = batch.chunks
    template["sizes"][: len(batch.slots)] = [s.size for s in batch.slots]
    template["starts"][: len(batch.slots)] = batch.starts
    places = [tensor.index for slot in batch.slots for tensor in slot.tensors]

    def fill(arguments: Sequence[Any]) -> np.ndarray:
        table = template.copy()
        table["addresses"][: len(places)] = [address(arguments[i]) for i in places]
        return table

    return StructLaunch(runtime, kernel.name, loaded, fill, args, batch.chunks, _BLOCK)
