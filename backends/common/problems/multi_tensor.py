"""Several tensors in one launch, whatever the shader language: what is known of them, and how they come into their places.

Tensors are given to kernels in slots. Kernels work in place on the outputs; where the framework passes outputs apart from
their inputs, those are copied first. Inputs that are not contiguous are copied to workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.launch import Constant, Number, ScalarType, Tensor, Workspace
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]
Step = Callable[..., None]
Parameter = Tensor | Workspace | Number | Constant
More = Callable[[int], Sequence[Parameter]]
"""The parameters after those of the slots, for the number of chunks in the launches before."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor per slot: its name in the kernel, its dtype, and whether it is only read."""

    name: str
    dtype: DType
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor per operand, contiguous and of equal size."""

    given: tuple[Tensor | Workspace, ...]
    size: int
    aligned: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel over slots, and what it is compiled with besides."""

    name: str
    operands: tuple[Operand, ...]
    definitions: Mapping[str, str | bool]
    real: ScalarType = "float"
    """What it computes in: float or double."""


@dataclass(frozen=True, slots=True)
class Makers:
    """How a backend makes the launches."""

    copy: Callable[[Any, Spec, Spec], Launch]
    """(runtime, source, target)"""
    over_slots: Callable[[Any, Kernel, Sequence[Slot], More], tuple[list[Launch], int]]
    """(runtime, kernel, slots, more): launches, and the number of chunks into which they cut their tensors."""
    total: Callable[[Any, Workspace, Tensor, int], Launch]
    """(runtime, partial sums in float32, output, how many)"""
    fill: Callable[[Any, Spec], Launch] | None = None
    """(runtime, target): where `scale_all` can tell, with CHECK, whether it met an infinity or a NaN"""


def settle(
    copy_of: Callable[[Any, Spec, Spec], Launch],
    runtime: Any,
    pairs: Sequence[tuple[int, int]],
    inputs: Inputs,
    outputs: tuple[Spec, ...],
) -> Step:
    """A step that copies input to output, by position, for every pair that is not the same memory, by launches of `copy_of`."""
    first_output = len(inputs)
    copies: dict[tuple[Spec, Spec], Launch] = {}
    planned = []
    for i, o in pairs:
        spec = inputs[i]
        assert isinstance(spec, Spec)
        target = outputs[o]
        if (spec, target) not in copies:
            copies[spec, target] = copy_of(runtime, spec, target)
        planned.append((i, first_output + o, copies[spec, target]))

    def run(*args: Any) -> None:
        for i, o, copy in planned:
            source, target = args[i], args[o]
            if source.handle is not target.handle or source.offset != target.offset:
                copy(source, target)

    return run


def dense(
    makers: Makers, runtime: Any, specs: Mapping[int, Spec], first_workspace: int
) -> tuple[list[Step], list[int], dict[int, Tensor | Workspace]]:
    """Steps that make the inputs at these positions contiguous in workspaces, their sizes, and how a kernel is given each."""
    steps: list[Step] = []
    workspace: list[int] = []
    given: dict[int, Tensor | Workspace] = {}
    for position, spec in specs.items():
        if spec.is_contiguous:
            given[position] = Tensor(position)
            continue
        target = contiguous(spec.dtype, spec.shape)
        copy = makers.copy(runtime, spec, target)
        place = first_workspace + len(workspace)

        def gather(
            *args: Any, copy: Launch = copy, position: int = position, place: int = place, target: Spec = target
        ) -> None:
            copy(args[position], Ref(args[place], target, 0))

        steps.append(gather)
        workspace.append(target.nbytes)
        given[position] = Workspace(place)
    return steps, workspace, given


def by_dtype(keys: Sequence[tuple[DType, ...]]) -> dict[tuple[DType, ...], list[int]]:
    """Positions of slots by the dtypes of their operands: one program handles one combination."""
    groups: dict[tuple[DType, ...], list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return groups
