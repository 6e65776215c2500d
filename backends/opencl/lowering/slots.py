"""Kernels over several tensors at once: their parameters, generated for the slots that fit in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyhal.backends.common.geometry import ceil_div
from polyhal.backends.common.launch import Constant
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
class Operand:
    """One tensor per slot: its name in the kernel, the C type of an element, and whether it is only read."""

    name: str
    storage: str
    read_only: bool = False

    @property
    def pointer(self) -> str:
        return f"__global {'const ' if self.read_only else ''}{self.storage} *"


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
    """SLOT_PARAMETERS, FIND_SLOT and the sizes of slots.h."""
    cpu = runtime.features.cpu
    width = runtime.features.vector_width
    if real == "double":
        width = max(1, width // 2)
    count = slots_per_launch(runtime, len(operands))
    declared = []
    for i in range(count):
        declared += [f"{o.pointer}{o.name}{i}, const ulong {o.name}{i}_offset" for o in operands]
        declared.append(f"const uint size{i}, const uint start{i}")
    variables = " ".join(f"{o.pointer}{o.name};" for o in operands) + " uint size, start;"
    choices = []
    for i in reversed(range(count)):
        chosen = " ".join(f"{o.name} = {o.name}{i} + {o.name}{i}_offset;" for o in operands)
        condition = f"if (chunk >= start{i}) " if i else ""
        choices.append(f"{condition}{{ {chosen} size = size{i}; start = start{i}; }}")
    return {
        "REAL": real,
        "WIDTH": width,
        "GROUP": 1 if cpu else runtime.features.group_size,
        "CHUNK": chunk_size(runtime),
        "SLOT_PARAMETERS": ",\n".join(declared),
        "FIND_SLOT": variables + "\n" + "\nelse ".join(choices),
    }


def chunk_size(runtime: Runtime) -> int:
    """Elements that one group takes."""
    return _CPU_CHUNK if runtime.features.cpu else _GPU_CHUNK


def batches(runtime: Runtime, operands: int, tensors: Sequence[tuple[tuple[Parameter, ...], int]]) -> list[Batch]:
    """Launches for slots of `operands` tensors, each given by its parameters and its number of elements.

    Slots left over repeat the first one's operands and start past the last chunk, so that no chunk finds them.
    """
    per_launch = slots_per_launch(runtime, operands)
    size_of_chunk = chunk_size(runtime)
    out = []
    for at in range(0, len(tensors), per_launch):
        part = tensors[at : at + per_launch]
        parameters: list[Parameter] = []
        start = 0
        for given, size in part:
            parameters += [*given, Constant(size, "uint"), Constant(start, "uint")]
            start += ceil_div(size, size_of_chunk)
        for _ in range(per_launch - len(part)):
            parameters += [*part[0][0], Constant(0, "uint"), Constant(start, "uint")]
        out.append(Batch(tuple(parameters), start))
    return out
