"""Optimizer steps and gradient scaling over many tensors, a launch for as many as its parameters hold."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common import optimizers
from polyhal.backends.common.launch import Tensor, Workspace
from polyhal.backends.common.slots import Kernel, Makers, More, Slot
from polyhal.hal.protocol import Launch
from polyhal_cupy.launch import pointers, uints
from polyhal_cupy.lowering import movement, slots
from polyhal_cupy.runtime import Runtime

_FILES = {"squares_of_chunks": "sum_of_squares"}
"""Kernels that are not alone in their file."""
_BLOCK = 256


def _over_slots(runtime: Runtime, kernel: Kernel, given: Sequence[Slot], more: More) -> tuple[list[Launch], int]:
    launches: list[Launch] = []
    chunks = 0
    for batch in slots.batches(given):
        launches.append(slots.launch(runtime, _FILES.get(kernel.name, kernel.name), kernel, batch, more(chunks)))
        chunks += batch.chunks
    return launches, chunks


def _total(runtime: Runtime, partial: Workspace, out: Tensor, count: int) -> Launch:
    parameters = [*pointers(partial.index, out.index), *uints(count)]
    definitions: dict[str, str | int | bool] = {"REAL": "float32", "BLOCK": _BLOCK}
    name = "total_of_chunks"
    return runtime.launch(name, "sum_of_squares", definitions, parameters, 1, _BLOCK, kernel=name)


LOWERINGS = optimizers.lowerings(Makers(movement.copy, _over_slots, _total))
