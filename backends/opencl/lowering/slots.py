"""Kernels over several tensors at once: their parameters, generated for the slots that fit in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.geometry import ceil_div
from polyhal.backends.common.launch import Constant, Workspace
from polyhal.backends.common.slots import Operand, Slot
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.runtime import Runtime

_MOST_SLOTS = 24
_OTHER_BYTES = 128
"""Room for the parameters of a launch that belong to no slot."""
_BYTES_PER_TENSOR = 16
_BYTES_PER_SLOT = 8
_CPU_CHUNK = 16384
_GPU_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Batch:
    """What one launch works on: the parameters of its slots and its number of chunks."""

    parameters: tuple[Parameter, ...]
    chunks: int


def slots_per_launch(runtime: Runtime, operands: int) -> int:
    """How many slots of so many tensors fit in the device's limit for kernel parameters."""
    room = int(runtime.device.max_parameter_size) - _OTHER_BYTES
    return max(1, min(_MOST_SLOTS, room // (operands * _BYTES_PER_TENSOR + _BYTES_PER_SLOT)))


def definitions(runtime: Runtime, operands: Sequence[Operand], real: str) -> dict[str, str | int | bool]:
    """SLOT_PARAMETERS and FIND_SLOT of slots.h, for kernels that have operands, and its sizes."""
    cpu = runtime.features.cpu
    width = runtime.features.vector_width
    if real == "double":
        width = max(1, width // 2)
    sizes: dict[str, str | int | bool] = {
        "REAL": real, "WIDTH": width, "GROUP": 1 if cpu else runtime.features.group_size, "CHUNK": _chunk_size(runtime)
    }  # fmt: skip
    return {**sizes, **_declarations(runtime, operands)} if operands else sizes


def _declarations(runtime: Runtime, operands: Sequence[Operand]) -> dict[str, str]:
    count = slots_per_launch(runtime, len(operands))
    declared = []
    for i in range(count):
        declared += [f"{_pointer(o)}{o.name}{i}, const ulong {o.name}{i}_offset" for o in operands]
        declared.append(f"const uint size{i}, const uint start{i}")
    variables = " ".join(f"{_pointer(o)}{o.name};" for o in operands) + " uint size, start;"
    choices = []
    for i in reversed(range(count)):
        chosen = " ".join(f"{o.name} = {o.name}{i} + {o.name}{i}_offset;" for o in operands)
        condition = f"if (chunk >= start{i}) " if i else ""
        choices.append(f"{condition}{{ {chosen} size = size{i}; start = start{i}; }}")
    return {"SLOT_PARAMETERS": ",\n".join(declared), "FIND_SLOT": variables + "\n" + "\nelse ".join(choices)}


def _pointer(operand: Operand) -> str:
    return f"__global {'const ' if operand.read_only else ''}STORAGE({operand.dtype.name}) *"


def _chunk_size(runtime: Runtime) -> int:
    """Elements that one group takes."""
    return _CPU_CHUNK if runtime.features.cpu else _GPU_CHUNK


def batches(runtime: Runtime, operands: int, slots: Sequence[Slot]) -> list[Batch]:
    """Launches for slots of `operands` tensors.

    Slots left over repeat the first one's operands and start past the last chunk, so that no chunk finds them.
    """
    per_launch = slots_per_launch(runtime, operands)
    chunk = _chunk_size(runtime)
    out = []
    for at in range(0, len(slots), per_launch):
        part = slots[at : at + per_launch]
        parameters: list[Parameter] = []
        start = 0
        for slot in part:
            parameters += [*_with_offsets(slot), Constant(slot.size, "uint"), Constant(start, "uint")]
            start += ceil_div(slot.size, chunk)
        for _ in range(per_launch - len(part)):
            parameters += [*_with_offsets(part[0]), Constant(0, "uint"), Constant(start, "uint")]
        out.append(Batch(tuple(parameters), start))
    return out


def _with_offsets(slot: Slot) -> list[Parameter]:
    """A workspace brings no offset; kernels over slots expect one."""
    out: list[Parameter] = []
    for given in slot.given:
        out += [given, Constant(0, "ulong")] if isinstance(given, Workspace) else [given]
    return out
