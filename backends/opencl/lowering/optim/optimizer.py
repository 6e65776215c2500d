"""Optimizer steps and gradient scaling over many tensors, a launch for as many as its parameters hold."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common.launching.geometry import power_of_two_at_most
from polyhal.backends.common.launching.launch import Constant, Tensor, Workspace
from polyhal.backends.common.problems import optim
from polyhal.backends.common.problems.multi_tensor import (
    ExtraParameters,
    MultiTensorBuilders,
    MultiTensorKernel,
    TensorSlot,
)
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.optim.multi_tensor import alike, batches, definitions
from polyhal.backends.opencl.lowering.pointwise import copy
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch

_FILES = {"squares_of_chunks": "sum_of_squares"}
"""Kernels that are not alone in their file."""
_LARGEST_GROUP = 1024
"""Work-items of a GPU that add up the sums of chunks: one group, which has nothing else to wait for memory with."""


def _over_slots(
    runtime: Runtime, kernel: MultiTensorKernel, slots: Sequence[TensorSlot], more: ExtraParameters
) -> tuple[list[Launch], int]:
    file = f"optim/{_FILES.get(kernel.name, kernel.name)}"
    function = kernel.name if kernel.name in _FILES else ""
    launches: list[Launch] = []
    chunks = 0
    for aligned, part in alike(runtime, slots):
        for batch in batches(runtime, len(kernel.operands), part):
            sizes = definitions(runtime, kernel.operands, kernel.real, slots=batch.slots, aligned=aligned)
            group = int(sizes["GROUP"])
            defined = {**sizes, **kernel.definitions}
            parameters = [*batch.parameters, *more(chunks)]
            launches.append(
                runtime.launch(kernel.name, file, defined, parameters, (batch.chunks * group,), (group,), kernel=function)
            )  # fmt: skip
            chunks += batch.chunks
    return launches, chunks


def _total(runtime: Runtime, partial: Workspace, out: Tensor, count: int) -> Launch:
    group = 1 if runtime.features.cpu else power_of_two_at_most(min(_LARGEST_GROUP, runtime.features.max_group_size))
    sizes = definitions(runtime, (), "float", group=group)
    parameters: list[Parameter] = [partial, out, Constant(count, "uint")]
    name = "total_of_chunks"
    return runtime.launch(name, "optim/sum_of_squares", sizes, parameters, (group,), (group,), kernel=name)


LOWERINGS = optim.lowerings(MultiTensorBuilders(copy.copy, _over_slots, _total, copy.fill))
