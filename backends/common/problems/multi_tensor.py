"""Kernels over many tensors at once, as in fused optimizers: grouping of tensors into slots, and copies to contiguous memory.

Kernels update the outputs in place. If outputs do not alias their inputs, the inputs are first copied to them. Inputs
that are not contiguous are copied to workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Scalar, ScalarType, Tensor, Workspace
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.ops.pointwise.foreach_elementwise import ListAccess
from polyhal.hal.ops.pointwise.fused_elementwise import GroupStep
from polyhal.hal.protocol import Declined, InputSpec, Launch, SimpleLaunch

Inputs = tuple[InputSpec | None, ...]
LaunchStep = Callable[..., None]
"""Function of the argument list of the whole launch."""
ExtraArguments = Callable[[int], Arguments]
"""Function from the number of chunks of previous launches to the named arguments in addition to the slots'."""


@dataclass(frozen=True, slots=True)
class SlotOperand:
    """One tensor or number of every slot: its name in the kernel, its dtype, and whether it is read-only."""

    name: str
    dtype: DType
    read_only: bool = False
    access: ListAccess = "elements"
    """Which of its elements corresponds to an element of the slot."""


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """One tensor, or number, per operand; tensors are contiguous and of `size` elements, as a parameter and its state."""

    tensors: tuple[Tensor | Workspace | Scalar, ...]
    size: int
    aligned: bool
    rows: int = 1
    """Number of rows of the tensors as matrices, the last two axes; of elements that are reduced, in reductions."""
    columns: int = 1


@dataclass(frozen=True, slots=True)
class MultiTensorKernel:
    """A kernel over slots and its definitions."""

    name: str
    operands: tuple[SlotOperand, ...]
    definitions: Mapping[str, str | bool]
    real: ScalarType = "float"
    """Type of the computation: float or double."""


@dataclass(frozen=True, slots=True)
class SlotSteps:
    """Elementwise steps on the tensors of a slot. Values are numbered as in a group: inputs first, then results of steps."""

    operands: tuple[SlotOperand, ...]
    inputs: tuple[InputSpec | None, ...]
    """Read operands in order, then the inputs shared by all slots."""
    shared: tuple[Tensor | Scalar, ...]
    """Arguments bound to the shared inputs."""
    steps: tuple[GroupStep, ...]
    writes: tuple[tuple[int, int], ...]
    """Pairs of an operand and the value written to it, cast to its dtype."""
    sums: tuple[int, ...] = ()
    """Values that are summed over the elements of each slot."""
    vectors: tuple[Tensor, ...] = ()
    """Outputs of the sums, with an element for each slot."""
    first_workspace: int = 0
    """Index of the first argument that is workspace for sums of chunks."""
    relaxed: bool = False
    """True if compilers may round a product and the sum that takes it once, and quotients and roots as the device does."""

    @property
    def real(self) -> ScalarType:
        """Type of the computation: double if an operand has 64 bits."""
        tensors = (o for o in self.operands if o.access != "number")
        return "double" if any(o.dtype.itemsize == 8 for o in tensors) else "float"

    @property
    def reads(self) -> int:
        """Number of read operands, the first ones."""
        return len(self.inputs) - len(self.shared)

    def position(self, operand: int) -> int:
        """Return the number of an operand in generated text: the input's, or a number after all inputs."""
        return operand if operand < self.reads else operand + len(self.shared)


@dataclass(frozen=True, slots=True)
class SlotSums:
    """Destinations of the sums of chunks: the outputs if every slot is one chunk, in order; else workspace."""

    targets: tuple[Tensor | Workspace, ...]
    workspace: tuple[int, ...]
    """Sizes in bytes; empty if the destinations are the outputs."""

    def arguments(self, chunks: int) -> Arguments:
        """Return the arguments of a launch that follows `chunks` chunks of earlier launches."""
        if not self.targets:
            return {}
        return {"first_chunk": chunks, **{f"sums{k}": target for k, target in enumerate(self.targets)}}


def sums_of_chunks(group: SlotSteps, ranges: Sequence[tuple[int, int]]) -> SlotSums:
    """Return the destinations of sums; `ranges` are the first chunk and the number of chunks of each slot."""
    if all(found == (i, 1) for i, found in enumerate(ranges)):
        return SlotSums(group.vectors, ())
    nbytes = sum(chunks for _, chunks in ranges) * (8 if group.real == "double" else 4)
    indices = range(group.first_workspace, group.first_workspace + len(group.sums))
    return SlotSums(tuple(map(Workspace, indices)), (nbytes,) * len(group.sums))


@dataclass(frozen=True, slots=True)
class MultiTensorBuilders:
    """A backend's builders of launches."""

    copy: Callable[[Any, Spec, Spec], Launch]
    """Builder (runtime, source, target)."""
    over_slots: Callable[[Any, MultiTensorKernel, Sequence[TensorSlot], ExtraArguments], tuple[list[Launch], int]]
    """Builder (runtime, kernel, slots, extra arguments) of launches, with the number of chunks of the tensors."""
    total: Callable[[Any, Workspace, Tensor, int], Launch]
    """Builder (runtime, partial sums in float32, output, count)."""
    fill: Callable[[Any, Spec], Launch] | None = None
    """Builder (runtime, target); absent if the kernel `scale_all` has no variant CHECK, which reports infinities and NaN."""
    chunk_ranges: Callable[[Any, Sequence[SlotOperand], Sequence[TensorSlot]], list[tuple[int, int]]] | None = None
    """Function (runtime, operands, slots) that returns the first chunk of each slot, counted as in `over_slots`, and its number
    of chunks."""
    norms: Callable[[Any, Workspace, Tensor, Sequence[tuple[int, int]]], Launch] | None = None
    """Builder (runtime, partial sums in float32, output, chunks of each tensor): the root of each sum. Requires
    `chunk_ranges`."""
    means: Callable[[Any, MultiTensorKernel, Sequence[TensorSlot]], list[Launch]] | None = None
    """Builder (runtime, kernel, slots) of means of `rows` elements at distances of `columns`; absent without a kernel."""
    elementwise: Callable[[Any, SlotSteps, Sequence[TensorSlot]], LaunchSequence | Declined] | None = None
    """Builder (runtime, steps, slots) of launches and workspace for sums; absent if no kernel computes groups of steps."""


def copy_unless_aliased(
    copy_builder: Callable[[Any, Spec, Spec], Launch],
    runtime: Any,
    pairs: Sequence[tuple[int, int]],
    inputs: Inputs,
    outputs: tuple[Spec, ...],
) -> LaunchStep:
    """Return a step that copies input to output for each pair of indices, unless they alias."""
    first_output = len(inputs)
    launches: dict[tuple[Spec, Spec], Launch] = {}
    copies = []
    for i, o in pairs:
        source_spec, target_spec = inputs[i], outputs[o]
        assert isinstance(source_spec, Spec)
        key = source_spec, target_spec
        if key not in launches:
            launches[key] = copy_builder(runtime, source_spec, target_spec)
        copies.append((i, first_output + o, launches[key]))

    def run(*args: Any) -> None:
        for i, o, copy in copies:
            source, target = args[i], args[o]
            if source.handle is not target.handle or source.offset != target.offset:
                copy(source, target)

    return run


@dataclass(frozen=True, slots=True)
class ContiguousInputs:
    """Inputs made contiguous by copies to workspace."""

    copies: tuple[LaunchStep, ...]
    workspace: tuple[int, ...]
    """Workspace sizes in bytes."""
    arguments: Mapping[int, Tensor | Workspace]
    """Argument that a kernel binds instead, by index of the input."""


def make_contiguous(
    builders: MultiTensorBuilders, runtime: Any, specs: Mapping[int, Spec], first_workspace: int
) -> ContiguousInputs:
    """Plan copies of the inputs with these indices that are not contiguous."""
    copies: list[LaunchStep] = []
    workspace: list[int] = []
    arguments: dict[int, Tensor | Workspace] = {}
    for index, spec in specs.items():
        if spec.is_contiguous:
            arguments[index] = Tensor(index)
            continue
        target = contiguous(spec.dtype, spec.shape)
        workspace_index = first_workspace + len(workspace)
        copies.append(_copy_to_workspace(builders.copy(runtime, spec, target), index, workspace_index, target))
        workspace.append(target.nbytes)
        arguments[index] = Workspace(workspace_index)
    return ContiguousInputs(tuple(copies), tuple(workspace), arguments)


def _copy_to_workspace(copy: Launch, index: int, workspace_index: int, target: Spec) -> LaunchStep:
    def run(*args: Any) -> None:
        copy(args[index], Ref(args[workspace_index], target, 0))

    return SimpleLaunch(copy.name, run)


def of_matrices(operands: Sequence[SlotOperand]) -> bool:
    """Return whether a kernel of these operands depends on the rows and columns of slots."""
    return any(o.access in ("rows", "columns", "matrices") for o in operands)


def group_by_dtypes(keys: Sequence[tuple[DType, ...]]) -> dict[tuple[DType, ...], list[int]]:
    """Group slot indices by the dtypes of the slots' tensors: each combination needs a separate program."""
    groups: dict[tuple[DType, ...], list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return groups


def tensors_of(inputs: Inputs) -> list[Spec]:
    """Return the specs of the tensors among the inputs."""
    return [s for s in inputs if isinstance(s, Spec)]


def too_large(specs: Sequence[Spec]) -> bool:
    """Return whether a tensor has more elements than the kernels can index."""
    return any(s.size >= 1 << 31 for s in specs)


def always(arguments: Arguments) -> ExtraArguments:
    """Return extra arguments that are equal for every launch."""
    return lambda _: arguments
