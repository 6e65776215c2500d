"""Gradient scaling and norms over many tensors at once. Optimizer steps decompose into a fused kernel for each parameter."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.common.problems import optim
from polyhal.backends.common.problems.multi_tensor import (
    ExtraArguments,
    MultiTensorBuilders,
    MultiTensorKernel,
    TensorSlot,
)
from polyhal.hal.protocol import Launch
from polyhal_cupy.lowering.optim import multi_tensor
from polyhal_cupy.lowering.pointwise import copy
from polyhal_cupy.runtime import Runtime

_FILES = {"squares_of_chunks": "sum_of_squares"}
"""File names of kernels that differ from the kernel's name."""
_BLOCK = 256


def _over_slots(
    runtime: Runtime, kernel: MultiTensorKernel, slots: Sequence[TensorSlot], extra: ExtraArguments
) -> tuple[list[Launch], int]:
    launches: list[Launch] = []
    chunks = 0
    for batch in multi_tensor.batches(slots):
        file = f"optim/{_FILES.get(kernel.name, kernel.name)}"
        launches.append(multi_tensor.launch(runtime, file, kernel, batch, extra(chunks)))
        chunks += batch.chunks
    return launches, chunks


def _total(runtime: Runtime, partial: Workspace, out: Tensor, count: int) -> Launch:
    args: Arguments = {"partial": partial, "out": out, "chunks": count}
    definitions: dict[str, str | int | bool] = {"REAL": "float32", "BLOCK": _BLOCK}
    name = "total_of_chunks"
    return runtime.launch(name, "optim/sum_of_squares", definitions, args, 1, _BLOCK, kernel=name)


LOWERINGS = optim.lowerings(MultiTensorBuilders(copy.copy, _over_slots, _total))
