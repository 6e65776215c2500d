"""Kernels over several tensors at once: generated parameters for as many slots as fit in one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments
from polyhal.backends.common.problems.multi_tensor import SlotOperand, TensorSlot, of_matrices
from polyhal.backends.opencl_c.dialect import passed_type
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange
from polyhal.backends.opencl_c.runtime import Runtime

_MAX_SLOTS = 24
_FEW_SLOTS = 4
"""Slots of a launch for small models: each slot costs time at every launch, used or not."""
_OTHER_BYTES = 128
"""Bytes reserved for the kernel parameters that belong to no slot."""
_BYTES_PER_TENSOR = 16
_BYTES_PER_SLOT = 8
_MATRIX = ("rows", "columns")
"""Arrays of the table of slots that kernels of matrices need."""
_CPU_CHUNK = 16384
_GPU_CHUNK = 2048


@dataclass(frozen=True, slots=True)
class Batch:
    """The slots of one launch."""

    args: Arguments
    """Tensors and SlotTable."""
    chunks: int
    slots: int
    """Slots that the kernel declares; unused ones are last."""


def slots_per_launch(runtime: Runtime, operands: Sequence[SlotOperand], other: int = _OTHER_BYTES) -> int:
    """Return how many slots of `operands` fit in the device's limit for kernel parameters, minus `other` bytes."""
    room = runtime.features.parameter_bytes - max(other, _OTHER_BYTES)
    per_slot = len(operands) * _BYTES_PER_TENSOR + _BYTES_PER_SLOT * (2 if of_matrices(operands) else 1)
    return max(1, min(_MAX_SLOTS, room // per_slot))


def by_alignment(runtime: Runtime, slots: Sequence[TensorSlot]) -> list[tuple[bool, Sequence[TensorSlot]]]:
    """Separate aligned from unaligned slots; CPUs need no distinction."""
    if runtime.features.cpu:
        return [(False, slots)]
    groups = [(aligned, [s for s in slots if s.aligned is aligned]) for aligned in (True, False)]
    return [(aligned, group) for aligned, group in groups if group]


def definitions(
    runtime: Runtime,
    operands: Sequence[SlotOperand],
    real: str,
    *,
    slots: int = 0,
    aligned: bool = False,
    group: int = 0,
) -> dict[str, str | int | bool]:
    """Return the definitions for lib/multi_tensor.h; SLOT_PARAMETERS and FIND_SLOT only for kernels with `slots`.

    CPUs load unaligned vectors at little cost. GPUs would move them byte by byte, so adjacent work-items process
    adjacent elements there.
    """
    cpu = runtime.features.cpu
    width = runtime.features.vector_width if cpu or aligned else 1
    if real == "double":
        width = max(1, width // 2)
    group = group or (1 if cpu else runtime.features.group_size)
    sizes: dict[str, str | int | bool] = {
        "REAL": real,
        "WIDTH": width,
        "ALIGNED": aligned,
        "GROUP": group,
        "CHUNK": chunk_size(runtime),
        "EXCHANGE": exchange(runtime, 8 if real == "double" else 4, group, group),
    }
    if of_matrices(operands):
        sizes["MATRICES"] = True
    return {**sizes, **_slot_definitions(operands, slots)} if slots else sizes


def _slot_definitions(operands: Sequence[SlotOperand], count: int) -> dict[str, str | int | bool]:
    parameters = [_parameter(o, i) for i in range(count) for o in operands]
    numbers = ", ".join(["size", "start", *_MATRIX * of_matrices(operands)])
    variables = " ".join(f"{_type(o)}{o.name};" for o in operands) + f" uint {numbers};"
    return {
        "SLOTS": count,
        "SLOT_PARAMETERS": ",\n".join(parameters),
        "FIND_SLOT": f"{variables}\n{_binary_search(operands, 0, count)}",
    }


def _binary_search(operands: Sequence[SlotOperand], first: int, end: int) -> str:
    """Return code that selects the last slot in [`first`, `end`) that starts at `chunk` or before."""
    if end - first == 1:
        values = " ".join(f"{o.name} = {_value(o, first)};" for o in operands)
        numbers = ("size", "start", *_MATRIX * of_matrices(operands))
        return " ".join([values, *(f"{name} = slots.{name}[{first}];" for name in numbers)])
    middle = (first + end) // 2
    left, right = _binary_search(operands, first, middle), _binary_search(operands, middle, end)
    return f"if (chunk < slots.start[{middle}]) {{ {left} }}\nelse {{ {right} }}"


def _parameter(operand: SlotOperand, slot: int) -> str:
    name = f"{operand.name}_{slot}"
    return f"{_type(operand)}{name}" + ("" if operand.access == "number" else f", const ulong {name}_offset")


def _value(operand: SlotOperand, slot: int) -> str:
    name = f"{operand.name}_{slot}"
    return name if operand.access == "number" else f"{name} + {name}_offset"


def _type(operand: SlotOperand) -> str:
    """Return the type of a number, or of a pointer to the elements of a tensor."""
    if operand.access == "number":
        return f"{passed_type(operand.dtype)} "
    return f"__global {'const ' if operand.read_only else ''}STORAGE({operand.dtype.name}) *"


def chunk_size(runtime: Runtime) -> int:
    """Return the elements per group."""
    return _CPU_CHUNK if runtime.features.cpu else _GPU_CHUNK


def batches(
    runtime: Runtime,
    operands: Sequence[SlotOperand],
    slots: Sequence[TensorSlot],
    other: int = _OTHER_BYTES,
    chunks_of: Callable[[TensorSlot], int] | None = None,
) -> list[Batch]:
    """Distribute slots over launches; empty ones are left out.

    `other` is the size of the parameters that all slots share, `chunks_of` returns the number of chunks of a slot.
    """
    per_launch = slots_per_launch(runtime, operands, other)
    filled = [s for s in slots if s.size]
    parts = [filled[i : i + per_launch] for i in range(0, len(filled), per_launch)]
    count = chunks_of or (lambda slot: ceil_div(slot.size, chunk_size(runtime)))
    return [_batch(operands, part, per_launch, count) for part in parts]


def chunk_ranges(
    runtime: Runtime, operands: Sequence[SlotOperand], slots: Sequence[TensorSlot]
) -> list[tuple[int, int]]:
    """Return the first chunk of each slot, in the numbering of launches by alignment, and its number of chunks."""
    ranges = [(0, 0)] * len(slots)
    first = 0
    for aligned in (None,) if runtime.features.cpu else (True, False):
        for i, slot in enumerate(slots):
            if aligned in (None, slot.aligned):
                ranges[i] = (first, ceil_div(slot.size, chunk_size(runtime)))
                first += ranges[i][1]
    return ranges


def _batch(
    operands: Sequence[SlotOperand],
    slots: Sequence[TensorSlot],
    per_launch: int,
    chunks_of: Callable[[TensorSlot], int],
) -> Batch:
    """Return the batch of a launch for `slots`.

    Unused slots repeat the first one's tensors and start past the last chunk, so that no chunk selects them.
    """
    declared = _FEW_SLOTS if len(slots) <= _FEW_SLOTS <= per_launch else per_launch
    unused = declared - len(slots)
    starts = [0]
    for slot in slots:
        starts.append(starts[-1] + chunks_of(slot))
    tensors = {
        f"{o.name}_{i}": tensor
        for i, slot in enumerate([*slots, *[slots[0]] * unused])
        for o, tensor in zip(operands, slot.tensors, strict=True)
    }
    sizes = (*(s.size for s in slots), *[0] * unused)
    args: Arguments = {**tensors, "size": sizes, "start": (*starts[:-1], *[starts[-1]] * unused)}
    if of_matrices(operands):
        args = {**args, **{name: (*(getattr(s, name) for s in slots), *[1] * unused) for name in _MATRIX}}
    return Batch(args, starts[-1], declared)
