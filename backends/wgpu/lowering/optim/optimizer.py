"""Optimizer steps and gradient scaling over many tensors, a launch for as many as its buffers and parameters hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, Tensor, Workspace
from polyhal.backends.common.problems import optim
from polyhal.backends.common.problems.multi_tensor import (
    ExtraParameters,
    MultiTensorBuilders,
    MultiTensorKernel,
    TensorSlot,
)
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.wgpu.launch import Parameter
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.reduction import passes
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import ALIGNMENT, Ref, contiguous
from polyhal.hal.protocol import Launch, SimpleLaunch

_MOST_SLOTS = 8
_WORDS = 32
"""Parameters that every device takes with a launch."""
_CPU_CHUNK = 16384
_GPU_CHUNK = 4096


def _over_slots(
    runtime: Runtime, kernel: MultiTensorKernel, slots: Sequence[TensorSlot], more: ExtraParameters
) -> tuple[list[Launch], int]:
    launches: list[Launch] = []
    chunks = 0
    room = (runtime.features.max_binding - 256) // max(o.dtype.itemsize for o in kernel.operands)
    for aligned in (True, False):
        chosen = [s for s in slots if s.aligned is aligned and s.size <= room]
        per_launch = _slots_per_launch(runtime, len(kernel.operands), more(0))
        for at in range(0, len(chosen), per_launch):
            launch, groups = _launch(runtime, kernel, chosen[at : at + per_launch], more(chunks))
            launches.append(launch)
            chunks += groups
    for slot in slots:
        step = room // ALIGNMENT * ALIGNMENT
        for at in range(0, slot.size if slot.size > room else 0, step):
            piece = TensorSlot(tuple(Tensor(g.index) for g in slot.tensors), min(step, slot.size - at), slot.aligned)
            launch, groups = _launch(runtime, kernel, [piece], more(chunks))
            launches.append(_moved(launch, kernel, piece, at))
            chunks += groups
    return launches, chunks


def _launch(
    runtime: Runtime, kernel: MultiTensorKernel, slots: Sequence[TensorSlot], more: Sequence[Parameter]
) -> tuple[Launch, int]:  # fmt: skip
    """One launch over slots of equal alignment, and its number of groups."""
    chunk = _CPU_CHUNK if runtime.features.cpu else _GPU_CHUNK
    groups = sum(ceil_div(s.size, chunk) for s in slots)
    parameters = [p for s in slots for p in (*_with_offsets(s), Constant(s.size, "uint"))]
    definitions = {**_definitions(runtime, kernel, slots[0].aligned), "SLOTS": len(slots), "CHUNK": chunk}
    return runtime.launch(kernel.name, f"optim/{kernel.name}", definitions, [*parameters, *more], groups), groups


def _moved(launch: Launch, kernel: MultiTensorKernel, piece: TensorSlot, at: int) -> Launch:
    """A launch on the part from element `at` on of tensors that a kernel cannot see whole."""

    def run(*args: Any) -> None:
        given = list(args)
        for operand, place in zip(kernel.operands, piece.tensors, strict=True):
            whole = given[place.index]
            handle, offset = (whole.handle, whole.offset) if isinstance(whole, Ref) else (whole, 0)
            given[place.index] = Ref(handle, contiguous(operand.dtype, (piece.size,)), offset + at)
        launch(*given)

    return SimpleLaunch(launch.name, run)


def _slots_per_launch(runtime: Runtime, operands: int, more: Sequence[Parameter]) -> int:
    buffers = sum(isinstance(p, (Tensor, Workspace)) for p in more)
    words = sum(not isinstance(p, Workspace) for p in more)
    return min(
        _MOST_SLOTS, (runtime.features.max_buffers - buffers) // operands, (_WORDS - words) // (operands + 1)
    )  # fmt: skip


def _definitions(runtime: Runtime, kernel: MultiTensorKernel, aligned: bool) -> dict[str, Any]:
    operands = [{"name": o.name, "dtype": o.dtype.name, "read_only": o.read_only} for o in kernel.operands]
    size = runtime.features.group_size
    placed = group_reduce.definitions(runtime, size, size)
    return {**placed, **kernel.definitions, "OPERANDS": operands, "WIDTH": 4 if aligned else 1}


def _with_offsets(slot: TensorSlot) -> list[Parameter]:
    """A workspace brings no offset; kernels over slots expect one."""
    out: list[Parameter] = []
    for given in slot.tensors:
        out += [given, Constant(0, "uint")] if isinstance(given, Workspace) else [given]
    return out


def _total(runtime: Runtime, partial: Workspace, out: Tensor, count: int) -> Launch:
    axes = Axes(((1, 0), (1, 0)), ((1, 0), (count, 1)))
    target = passes.Target(passes.Operand(out, dtypes.float32), (0, 0))
    return passes.one_pass(runtime, "sum", passes.Operand(partial, dtypes.float32), axes, target)


LOWERINGS = optim.lowerings(MultiTensorBuilders(copy.copy, _over_slots, _total))
