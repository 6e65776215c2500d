"""Kernels over several tensors at once: number of slots per launch, and windows of tensors that are too large to bind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, Arguments, Scalar, Tensor, Workspace
from polyhal.backends.common.problems.multi_tensor import (
    ExtraArguments,
    MultiTensorKernel,
    SlotOperand,
    TensorSlot,
    of_matrices,
)
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.parameter_ring import MAX_PARAMETER_WORDS
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import ALIGNMENT, Ref, contiguous
from polyhal.hal.protocol import Launch, SimpleLaunch

_CPU_SLOTS = 8
"""Maximum tensors of a launch on a CPU, whose compilers take long for more."""
_GPU_SLOTS = 16
_CPU_CHUNK = 16384
_GPU_CHUNK = 4096


def over_slots(
    runtime: Runtime,
    file: str,
    kernel: MultiTensorKernel,
    slots: Sequence[TensorSlot],
    extra: ExtraArguments,
    groups_of: Callable[[TensorSlot], int] | None = None,
    more_words: int = 0,
) -> tuple[list[Launch], int]:
    """Return the launches of a kernel over all slots, and their total number of workgroups, `groups_of` each slot.

    `more_words` is the number of 32-bit words that the numbers in `extra` take beyond one each.
    Raises KernelBuildError if the buffers and parameters of one slot exceed the limits of a launch.
    """
    launches: list[Launch] = []
    chunks = 0
    most = max_elements(runtime, kernel.operands)
    count = groups_of or (lambda slot: ceil_div(slot.size, chunk_size(runtime)))
    for aligned in (True, False):
        bindable = [s for s in slots if s.aligned is aligned and s.size <= most]
        per_launch = slots_per_launch(runtime, kernel.operands, extra(0), more_words)
        for start in range(0, len(bindable), per_launch):
            launch, groups = _launch(runtime, file, kernel, bindable[start : start + per_launch], extra(chunks), count)
            launches.append(launch)
            chunks += groups
    step = most // ALIGNMENT * ALIGNMENT
    for slot in slots:
        for start in range(0, slot.size if slot.size > most else 0, step):
            operands = tuple(t if isinstance(t, Scalar) else Tensor(t.index) for t in slot.tensors)
            window = TensorSlot(operands, min(step, slot.size - start), slot.aligned)
            launch, groups = _launch(runtime, file, kernel, [window], extra(chunks), count)
            launches.append(_on_window(launch, kernel, window, start))
            chunks += groups
    return launches, chunks


def chunk_ranges(
    runtime: Runtime, operands: Sequence[SlotOperand], slots: Sequence[TensorSlot]
) -> list[tuple[int, int]]:
    """Return the first chunk of each slot, in the order of the launches of `over_slots`, and its number of chunks."""
    most = max_elements(runtime, operands)
    step = most // ALIGNMENT * ALIGNMENT
    ranges, first = [(0, 0)] * len(slots), 0
    for i in sorted(range(len(slots)), key=lambda i: 2 if slots[i].size > most else not slots[i].aligned):
        whole, rest = divmod(slots[i].size, step) if slots[i].size > most else (0, slots[i].size)
        count = whole * ceil_div(step, chunk_size(runtime)) + ceil_div(rest, chunk_size(runtime))
        ranges[i], first = (first, count), first + count
    return ranges


def max_elements(runtime: Runtime, operands: Sequence[SlotOperand]) -> int:
    """Return the maximum number of elements of a tensor that is bound whole."""
    return (runtime.features.max_binding - 256) // max(o.dtype.itemsize for o in operands)


def chunk_size(runtime: Runtime) -> int:
    """Return the elements per workgroup."""
    return _CPU_CHUNK if runtime.features.cpu else _GPU_CHUNK


def _launch(
    runtime: Runtime,
    file: str,
    kernel: MultiTensorKernel,
    slots: Sequence[TensorSlot],
    extra: Arguments,
    groups_of: Callable[[TensorSlot], int],
) -> tuple[Launch, int]:
    """Return one launch over slots of equal alignment, and its number of workgroups."""
    groups = sum(map(groups_of, slots))
    args: dict[str, Argument] = {f"size{i}": slot.size for i, slot in enumerate(slots)}
    if of_matrices(kernel.operands):
        args |= {f"{name}{i}": getattr(slot, name) for i, slot in enumerate(slots) for name in ("rows", "columns")}
    for i, slot in enumerate(slots):
        args |= {f"{operand.name}{i}": t for operand, t in zip(kernel.operands, slot.tensors, strict=True)}
    definitions = {**_definitions(runtime, kernel, slots[0].aligned), "SLOTS": len(slots), "CHUNK": chunk_size(runtime)}
    return runtime.launch(file, definitions, {**args, **extra}, groups), groups


def _on_window(launch: Launch, kernel: MultiTensorKernel, window: TensorSlot, start: int) -> Launch:
    """Return the launch on a window, starting at element `start`, of tensors that are too large to bind whole."""

    def run(*args: Any) -> None:
        arguments = list(args)
        for operand, tensor in zip(kernel.operands, window.tensors, strict=True):
            if operand.access in ("single", "number"):
                continue
            whole = arguments[tensor.index]
            handle, offset = (whole.handle, whole.offset) if isinstance(whole, Ref) else (whole, 0)
            arguments[tensor.index] = Ref(handle, contiguous(operand.dtype, (window.size,)), offset + start)
        launch(*arguments)

    return SimpleLaunch(launch.name, run)


def slots_per_launch(runtime: Runtime, operands: Sequence[SlotOperand], extra: Arguments, more_words: int = 0) -> int:
    """Return how many slots a launch can bind in addition to other arguments.

    Their numbers take `more_words` 32-bit words beyond one each.
    """
    per_slot = len(operands) + (3 if of_matrices(operands) else 1)
    buffers = sum(isinstance(value, (Tensor, Workspace)) for value in extra.values())
    words = more_words + sum(not isinstance(value, Workspace) for value in extra.values())
    tensors = sum(o.access != "number" for o in operands)
    return min(
        _CPU_SLOTS if runtime.features.cpu else _GPU_SLOTS,
        (runtime.features.max_buffers - buffers) // tensors,
        (MAX_PARAMETER_WORDS - words) // per_slot,
    )


def _definitions(runtime: Runtime, kernel: MultiTensorKernel, aligned: bool) -> dict[str, Any]:
    operands = [
        {"name": o.name, "dtype": o.dtype.name, "read_only": o.read_only, "access": o.access} for o in kernel.operands
    ]
    size = runtime.features.group_size
    return {
        **group_reduce.definitions(runtime, size, size),
        **kernel.definitions,
        "OPERANDS": operands,
        "WIDTH": 4 if aligned else 1,
    }
