"""Optimizer steps and gradient scaling over many tensors: each launch processes as many as its parameters can hold."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common.launching.geometry import power_of_two_at_most
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.common.problems import optim
from polyhal.backends.common.problems.multi_tensor import (
    ExtraArguments,
    MultiTensorBuilders,
    MultiTensorKernel,
    TensorSlot,
)
from polyhal.backends.opencl_c.lowering.pointwise import copy, foreach
from polyhal.backends.opencl_c.lowering.support.multi_tensor import batches, by_alignment, chunk_ranges, definitions
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_FILES = {"squares_of_chunks": "sum_of_squares"}
"""Files of kernels that are not named as their file."""
_MAX_GROUP = 1024
"""Work-items of the single group of a GPU that reduces all partial sums; only work-items can hide its memory latency."""


def _over_slots(
    runtime: Runtime, kernel: MultiTensorKernel, slots: Sequence[TensorSlot], extra: ExtraArguments
) -> tuple[list[Launch], int]:
    file = f"optim/{_FILES.get(kernel.name, kernel.name)}"
    function = kernel.name if kernel.name in _FILES else ""
    launches: list[Launch] = []
    chunks = 0
    for aligned, part in by_alignment(runtime, slots):
        for batch in batches(runtime, kernel.operands, part):
            sizes = definitions(runtime, kernel.operands, kernel.real, slots=batch.slots, aligned=aligned)
            group = int(sizes["GROUP"])
            launches.append(
                runtime.launch(
                    file,
                    {**sizes, **kernel.definitions},
                    {**batch.args, **extra(chunks)},
                    (batch.chunks * group,),
                    (group,),
                    kernel=function,
                )
            )
            chunks += batch.chunks
    return launches, chunks


def _total(runtime: Runtime, partial: Workspace, out: Tensor, count: int) -> Launch:
    group = 1 if runtime.features.cpu else power_of_two_at_most(min(_MAX_GROUP, runtime.features.max_group_size))
    sizes = definitions(runtime, (), "float", group=group)
    return runtime.launch(
        "optim/sum_of_squares",
        sizes,
        {"partial": partial, "out": out, "chunks": count},
        (group,),
        (group,),
        kernel="total_of_chunks",
    )


def _norms(runtime: Runtime, partial: Workspace, out: Tensor, ranges: Sequence[tuple[int, int]]) -> Launch:
    return foreach.sums_of_tensors(runtime, partial, out, ranges, root=True)


def _means(runtime: Runtime, kernel: MultiTensorKernel, slots: Sequence[TensorSlot]) -> list[Launch]:
    launches: list[Launch] = []
    sizes = definitions(runtime, kernel.operands, kernel.real)
    chunk, group = int(sizes["CHUNK"]), int(sizes["GROUP"])
    strip = group * int(sizes["WIDTH"])
    for batch in batches(runtime, kernel.operands, slots, chunks_of=lambda slot: optim.mean_tasks(slot, chunk, strip)):
        of_batch = definitions(runtime, kernel.operands, kernel.real, slots=batch.slots)
        launches.append(
            runtime.launch(
                "optim/means_along", {**of_batch, **kernel.definitions}, batch.args, (batch.chunks * group,), (group,)
            )
        )
    return launches


LOWERINGS = optim.lowerings(
    MultiTensorBuilders(copy.copy, _over_slots, _total, copy.fill, chunk_ranges, _norms, _means, foreach.over_slots)
)
