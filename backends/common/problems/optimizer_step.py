"""Optimizer steps over many parameters: checks of the tensors, scalars computed on the host, and the launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from polyhal.backends.common.launching.launch import Argument, Scalar, ScalarType, Tensor, Workspace, joint_name
from polyhal.backends.common.problems.multi_tensor import (
    ContiguousInputs,
    Inputs,
    LaunchStep,
    MultiTensorBuilders,
    MultiTensorKernel,
    SlotOperand,
    TensorSlot,
    always,
    copy_unless_aliased,
    group_by_dtypes,
    make_contiguous,
    tensors_of,
    too_large,
)
from polyhal.hal import dtypes
from polyhal.hal.capture.runtime_scalars import derive
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch

_GRADIENT = 1
"""The kind of tensor that a step only reads; kind 0 are parameters, 2 and above optimizer states."""


@dataclass(frozen=True, slots=True)
class DerivedScalars:
    """Kernel scalars computed from the op's scalars at every launch, in double precision.

    Example: 1 - beta2 for beta2 = 0.999 would be off by 5e-5 if computed in single precision.
    """

    function: Callable[..., tuple[float, ...]]
    takes: int
    """Scalars of the op."""
    names: tuple[str, ...]
    """What the kernel calls the results."""

    def extend(self, steps: tuple[LaunchStep, ...], first: int, total: int) -> LaunchStep:
        """Run `steps` with the derived scalars appended to the `total` arguments; the op's scalars begin at `first`."""

        def run(*args: Any) -> None:
            extended = (*args[:total], *derive(self.function, args[first : first + self.takes], len(self.names)))
            for step in steps:
                step(*extended)

        return run


@dataclass(frozen=True, slots=True)
class StepKernel:
    """The kernel of an optimizer step."""

    name: str
    operands: tuple[str, ...]
    """What it calls a parameter, its gradient, and each optimizer state."""
    scalars: DerivedScalars
    flags: Mapping[str, bool]
    counted: bool
    """Whether the last inputs are step counts in device memory: one, or one for each parameter."""


@dataclass(frozen=True, slots=True)
class StepTensors:
    """The tensors of an optimizer step: `count` tensors of each kind, ordered by kind in the argument list.

    The outputs are the new parameters and states, in the same order.
    """

    count: int
    kinds: tuple[tuple[Spec, ...], ...]
    outputs: tuple[Spec, ...]
    first_output: int
    """Index of the first output in the argument list."""

    def written(self) -> list[int]:
        """Return the kinds that the step updates, in the order of the outputs."""
        return [kind for kind in range(len(self.kinds)) if kind != _GRADIENT]

    def output(self, kind: int, i: int) -> int:
        """Return the index, among the outputs, of tensor `i` of a kind."""
        return self.written().index(kind) * self.count + i

    def dtypes(self) -> list[tuple[DType, ...]]:
        """Return the dtypes of each parameter, its gradient and its states."""
        return [tuple(s.dtype for s in slot) for slot in zip(*self.kinds, strict=True)]

    def slot(self, i: int, gradient: Tensor | Workspace) -> TensorSlot:
        """Return the slot of parameter `i`, whose gradient is bound to `gradient`."""
        arguments = [
            gradient if kind == _GRADIENT else Tensor(self.first_output + self.output(kind, i))
            for kind in range(len(self.kinds))
        ]
        aligned = isinstance(gradient, Workspace) or self.kinds[_GRADIENT][i].aligned
        aligned = aligned and all(self.outputs[self.output(kind, i)].aligned for kind in self.written())
        return TensorSlot(tuple(arguments), self.kinds[0][i].size, aligned)


def lower_step(
    builders: MultiTensorBuilders, runtime: Any, inputs: Inputs, outputs: tuple[Spec, ...], kernel: StepKernel, count: int
) -> Launch | Declined:  # fmt: skip
    """Lower an optimizer step over `count` parameters."""
    tensors = _check(inputs, outputs, kernel, count)
    if isinstance(tensors, Declined):
        return tensors
    pairs = [(kind * count + i, tensors.output(kind, i)) for kind in tensors.written() for i in range(count)]
    first_workspace = len(inputs) + len(outputs)
    gradients = {count + i: s for i, s in enumerate(tensors.kinds[_GRADIENT])}
    contiguous = make_contiguous(builders, runtime, gradients, first_workspace)
    total = first_workspace + len(contiguous.workspace)
    launches = _launches(builders, runtime, tensors, contiguous, kernel, _step_counts(inputs, kernel, count), total)
    steps: tuple[LaunchStep, ...] = (
        copy_unless_aliased(builders.copy, runtime, pairs, inputs, outputs),
        *contiguous.copies,
        *launches,
    )
    run = kernel.scalars.extend(steps, count * len(kernel.operands), total)
    return SimpleLaunch(joint_name((*contiguous.copies, *launches)), run, contiguous.workspace)


def _step_counts(inputs: Inputs, kernel: StepKernel, count: int) -> tuple[Spec, ...]:
    """The step counts in device memory, which are the last inputs."""
    return tuple(tensors_of(inputs)[count * len(kernel.operands) :]) if kernel.counted else ()


def _check(inputs: Inputs, outputs: tuple[Spec, ...], kernel: StepKernel, count: int) -> StepTensors | Declined:
    steps = _step_counts(inputs, kernel, count)
    tensors = tensors_of(inputs[: len(inputs) - len(steps)])
    if len(tensors) != count * len(kernel.operands) or too_large(tensors):
        return Declined("a parameter has 2^31 elements or more, or is a number")
    kinds = tuple(tuple(tensors[i * count : (i + 1) * count]) for i in range(len(kernel.operands)))
    params, grads, *states = kinds
    if any(s.dtype.itemsize < 4 or not s.dtype.is_floating_point for state in states for s in state):
        return Declined("optimizer state in half precision")
    if any(not s.dtype.is_floating_point for s in (*params, *grads)):
        return Declined("parameters or gradients that are not floating point")
    return StepTensors(count, kinds, outputs, len(inputs))


def _launches(
    builders: MultiTensorBuilders, runtime: Any, tensors: StepTensors, contiguous: ContiguousInputs, kernel: StepKernel,
    step_counts: tuple[Spec, ...], first_scalar: int,
) -> list[Launch]:  # fmt: skip
    """Return the launches for each combination of dtypes."""
    launches: list[Launch] = []
    scalars: dict[str, Argument] = {name: Scalar(first_scalar + i) for i, name in enumerate(kernel.scalars.names)}
    for key, members in _batches(tensors, step_counts, by_slot=builders.counts_by_slot).items():
        types, counts = key
        definitions: dict[str, str | bool] = {
            "PARAMETER_DTYPE": types[0].name, "GRADIENT_DTYPE": types[_GRADIENT].name,
            "STATE_DTYPE": types[2].name if len(types) > 2 else "float32", **kernel.flags,
        }  # fmt: skip
        operands = [
            SlotOperand(name, dtype, kind == _GRADIENT)
            for kind, (name, dtype) in enumerate(zip(kernel.operands, types, strict=True))
        ]
        slots = [tensors.slot(i, contiguous.arguments[tensors.count + i]) for i in members]
        extra: dict[str, Argument] = {}
        if step_counts:
            first = tensors.first_output - len(step_counts)
            definitions |= {"COUNTED": True, "STEP_COUNT_DTYPE": step_counts[0].dtype.name}
            if counts is None:
                definitions["COUNT_BY_SLOT"] = True
                operands.append(SlotOperand("t", step_counts[0].dtype, True))
                slots = [
                    replace(s, tensors=(*s.tensors, Tensor(first + i))) for s, i in zip(slots, members, strict=True)
                ]
            else:
                extra["step_count"] = Tensor(first + counts)
        real: ScalarType = "double" if dtypes.float64 in types else "float"
        variant = MultiTensorKernel(kernel.name, tuple(operands), definitions, real)
        launches += builders.over_slots(runtime, variant, slots, always({**extra, **scalars}))[0]
    return launches


def _batches(
    tensors: StepTensors, step_counts: tuple[Spec, ...], *, by_slot: bool
) -> dict[tuple[tuple[DType, ...], int | None], list[int]]:
    """Parameters by their dtypes and the number of the step count that they share; None if each brings its own to its slot."""
    found: dict[tuple[tuple[DType, ...], int | None], list[int]] = {}
    each = len(step_counts) > 1
    for types, members in group_by_dtypes(tensors.dtypes()).items():
        for i in members:
            found.setdefault((types, (None if by_slot else i) if each else 0), []).append(i)
    return found
