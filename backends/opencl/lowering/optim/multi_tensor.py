"""Kernels over several tensors at once: their parameters, generated for the slots that fit in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, Workspace
from polyhal.backends.common.problems.multi_tensor import SlotOperand, TensorSlot
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.support.group_reduce import exchange
from polyhal.backends.opencl.runtime import Runtime

_MOST_SLOTS = 24
_FEW_SLOTS = 4
"""Small models have few parameters, and each slot costs time at every launch, whether it is used or not."""
_OTHER_BYTES = 128
"""Room for the parameters of a launch that belong to no slot."""
_BYTES_PER_TENSOR = 16
_BYTES_PER_SLOT = 8
_CPU_CHUNK = 16384
_GPU_CHUNK = 2048


@dataclass(frozen=True, slots=True)
class Batch:
    """What one launch works on: the parameters of its slots and its number of chunks."""

    parameters: tuple[Parameter, ...]
    chunks: int
    slots: int
    """How many the kernel must declare."""


def slots_per_launch(runtime: Runtime, operands: int) -> int:
    """How many slots of so many tensors fit in the device's limit for kernel parameters."""
    room = int(runtime.device.max_parameter_size) - _OTHER_BYTES
    return max(1, min(_MOST_SLOTS, room // (operands * _BYTES_PER_TENSOR + _BYTES_PER_SLOT)))


def alike(runtime: Runtime, slots: Sequence[TensorSlot]) -> list[tuple[bool, Sequence[TensorSlot]]]:
    """Slots by whether they are aligned, where that makes a difference: not to CPUs."""
    if runtime.features.cpu:
        return [(False, slots)]
    parts = [(aligned, [s for s in slots if s.aligned is aligned]) for aligned in (True, False)]
    return [(aligned, part) for aligned, part in parts if part]


def definitions(
    runtime: Runtime,
    operands: Sequence[SlotOperand],
    real: str,
    *,
    slots: int = 0,
    aligned: bool = False,
    group: int = 0,
) -> dict[str, str | int | bool]:
    """Definitions for lib/multi_tensor.h: sizes, and SLOT_PARAMETERS and FIND_SLOT for kernels with `slots`.

    CPUs take vectors that are not aligned in their stride. GPUs would move them byte by byte, so there neighbouring work-items
    take neighbouring elements instead.
    """
    cpu = runtime.features.cpu
    width = runtime.features.vector_width if cpu or aligned else 1
    if real == "double":
        width = max(1, width // 2)
    group = group or (1 if cpu else runtime.features.group_size)
    sizes: dict[str, str | int | bool] = {
        "REAL": real, "WIDTH": width, "ALIGNED": aligned, "GROUP": group, "CHUNK": _chunk_size(runtime),
        "EXCHANGE": exchange(runtime, 8 if real == "double" else 4, group, group),
    }  # fmt: skip
    return {**sizes, **_declarations(operands, slots)} if slots else sizes


def _declarations(operands: Sequence[SlotOperand], count: int) -> dict[str, str]:
    declared = []
    for i in range(count):
        declared += [f"{_pointer(o)}{o.name}{i}, const ulong {o.name}{i}_offset" for o in operands]
        declared.append(f"const uint size{i}, const uint start{i}")
    variables = " ".join(f"{_pointer(o)}{o.name};" for o in operands) + " uint size, start;"
    return {"SLOT_PARAMETERS": ",\n".join(declared), "FIND_SLOT": f"{variables}\n{_choice(operands, 0, count)}"}


def _choice(operands: Sequence[SlotOperand], first: int, end: int) -> str:
    """A search by halves for the last slot of those from `first` to before `end` that begins at the chunk or before it."""
    if end - first == 1:
        chosen = " ".join(f"{o.name} = {o.name}{first} + {o.name}{first}_offset;" for o in operands)
        return f"{chosen} size = size{first}; start = start{first};"
    middle = (first + end) // 2
    left, right = _choice(operands, first, middle), _choice(operands, middle, end)
    return f"if (chunk < start{middle}) {{ {left} }}\nelse {{ {right} }}"


def _pointer(operand: SlotOperand) -> str:
    return f"__global {'const ' if operand.read_only else ''}STORAGE({operand.dtype.name}) *"


def _chunk_size(runtime: Runtime) -> int:
    """Elements that one group takes."""
    return _CPU_CHUNK if runtime.features.cpu else _GPU_CHUNK


def batches(runtime: Runtime, operands: int, slots: Sequence[TensorSlot]) -> list[Batch]:
    """Launches for slots of `operands` tensors, empty ones left out.

    Slots left over repeat the first one's operands and start past the last chunk, so that no chunk finds them.
    """
    per_launch = slots_per_launch(runtime, operands)
    chunk = _chunk_size(runtime)
    filled = [s for s in slots if s.size]
    out = []
    for at in range(0, len(filled), per_launch):
        part = filled[at : at + per_launch]
        declared = _FEW_SLOTS if len(part) <= _FEW_SLOTS <= per_launch else per_launch
        parameters: list[Parameter] = []
        start = 0
        for slot in part:
            parameters += [*_with_offsets(slot), Constant(slot.size, "uint"), Constant(start, "uint")]
            start += ceil_div(slot.size, chunk)
        for _ in range(declared - len(part)):
            parameters += [*_with_offsets(part[0]), Constant(0, "uint"), Constant(start, "uint")]
        out.append(Batch(tuple(parameters), start, declared))
    return out


def _with_offsets(slot: TensorSlot) -> list[Parameter]:
    """A workspace brings no offset; kernels over slots expect one."""
    out: list[Parameter] = []
    for tensor in slot.tensors:
        out += [tensor, Constant(0, "ulong")] if isinstance(tensor, Workspace) else [tensor]
    return out
