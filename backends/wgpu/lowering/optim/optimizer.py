"""Optimizer steps and gradient scaling over many tensors: each launch processes as many as its buffers and parameters hold.

Kernels: shaders/wgsl/optim; steps run by pointwise/foreach.wgsl.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.backends.common.problems import optim
from polyhal.backends.common.problems.multi_tensor import (
    ExtraArguments,
    MultiTensorBuilders,
    MultiTensorKernel,
    TensorSlot,
    always,
)
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.wgpu.lowering.pointwise import copy, foreach
from polyhal.backends.wgpu.lowering.reduction import single_pass
from polyhal.backends.wgpu.lowering.support.multi_tensor import chunk_ranges, chunk_size, over_slots
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Launch

_FILES = {"squares_of_chunks": "sum_of_squares"}
"""File names of kernels that differ from the kernel's name."""


def _over_slots(
    runtime: Runtime, kernel: MultiTensorKernel, slots: Sequence[TensorSlot], extra: ExtraArguments
) -> tuple[list[Launch], int]:
    return over_slots(runtime, f"optim/{_FILES.get(kernel.name, kernel.name)}", kernel, slots, extra)


def _total(runtime: Runtime, partial: Workspace, out: Tensor, count: int) -> Launch:
    axes = Axes(((1, 0), (1, 0)), ((1, 0), (count, 1)))
    target = single_pass.Target(single_pass.Operand(out, dtypes.float32), (0, 0))
    return single_pass.reduce(runtime, "sum", single_pass.Operand(partial, dtypes.float32), axes, target)


def _norms(runtime: Runtime, partial: Workspace, out: Tensor, ranges: Sequence[tuple[int, int]]) -> Launch:
    return foreach.sums_of_tensors(runtime, partial, out, ranges, root=True)


def _means(runtime: Runtime, kernel: MultiTensorKernel, slots: Sequence[TensorSlot]) -> list[Launch]:
    chunk, group = chunk_size(runtime), runtime.features.group_size
    launches, _ = over_slots(
        runtime, "optim/means_along", kernel, slots, always({}), lambda slot: optim.mean_tasks(slot, chunk, group)
    )
    return launches


LOWERINGS = optim.lowerings(
    MultiTensorBuilders(
        copy.copy,
        _over_slots,
        _total,
        chunk_ranges=chunk_ranges,
        norms=_norms,
        means=_means,
        elementwise=foreach.over_tensors,
    )
)
