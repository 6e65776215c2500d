"""Optimizer steps over many parameters, from their update rules: numbers computed on the host, and launches over slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.launch import LaunchSequence, Scalar, Tensor, Workspace
from polyhal.backends.common.problems.multi_tensor import (
    Inputs,
    LaunchStep,
    MultiTensorBuilders,
    SlotOperand,
    SlotSteps,
    TensorSlot,
    copy_unless_aliased,
    group_by_dtypes,
    make_contiguous,
    tensors_of,
    too_large,
)
from polyhal.hal.core.execution.runtime_scalars import derive
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec, Spec, contiguous
from polyhal.hal.ops.optim.rule_program import RuleProgram
from polyhal.hal.ops.optim.update_rule import UpdateRule
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_GRADIENT = 1
"""Group of the gradients, which a step only reads; group 0 are parameters, 2 and above states."""


def lower_step(
    rule: UpdateRule,
    builders: MultiTensorBuilders,
    runtime: Any,
    inputs: Inputs,
    outputs: tuple[Spec, ...],
    params: Params,
) -> Launch | Declined:
    """Lower an optimizer step, which updates parameters and states in place, in the memory of the outputs."""
    if builders.elementwise is None:
        return Declined("no kernel computes groups of steps on many tensors")
    call = _Call(rule, inputs, outputs, params)
    refusal = call.refusal()
    if refusal:
        return Declined(refusal)
    first_workspace = len(inputs) + len(outputs)
    dense = make_contiguous(builders, runtime, call.gradients(), first_workspace)
    total = first_workspace + len(dense.workspace)
    launches: list[LaunchStep] = []
    for kinds, members in group_by_dtypes(call.kinds()).items():
        program, steps = call.steps(kinds, total)
        found = builders.elementwise(runtime, steps, [call.slot(i, dense.arguments) for i in members])
        if isinstance(found, Declined):
            return found
        launches.append(_with_numbers(program, found, call.first_number, len(inputs), total))
    copies = copy_unless_aliased(builders.copy, runtime, call.updates(), inputs, outputs)
    return LaunchSequence((copies, *dense.copies, *launches), dense.workspace)


class _Call:
    """The operands of an optimizer step: `count` tensors of each group, which are ordered by group in the argument list.

    The outputs are the new parameters and states, in the same order.
    """

    def __init__(self, rule: UpdateRule, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> None:
        self._rule, self._inputs, self._outputs, self._params = rule, inputs, outputs, params
        groups, steps, _ = rule.split(inputs, params)
        self._count, self._groups = params["count"], len(groups)
        self._tensors = tensors_of(inputs[: self._count * self._groups])
        self._counts = tensors_of(tuple(steps))
        """Step numbers in device memory: none, one, or one for each parameter."""
        self.first_number = self._count * self._groups + len(self._counts)
        """Index of the first number that is an argument."""

    def refusal(self) -> str:
        """Return the reason why kernels do not support the operands; empty if they do."""
        if len(self._tensors) < self._count * self._groups or too_large(self._tensors):
            return "a parameter has 2^31 elements or more, or is a number"
        return "" if all(s.dtype.is_floating_point for s in self._tensors) else "a tensor is not floating point"

    def gradients(self) -> dict[int, Spec]:
        """Return the gradients by index of the input."""
        return {i: self._tensors[i] for i in range(self._count, 2 * self._count)}

    def updates(self) -> list[tuple[int, int]]:
        """Return pairs of an updated input and its output."""
        indices = [i for i in range(len(self._tensors)) if i // self._count != _GRADIENT]
        return [(i, o) for o, i in enumerate(indices)]

    def kinds(self) -> list[tuple[DType, ...]]:
        """Return the dtypes of each parameter, its gradient and its states."""
        return [tuple(s.dtype for s in self._tensors[i :: self._count]) for i in range(self._count)]

    def slot(self, i: int, gradients: Mapping[int, Tensor | Workspace]) -> TensorSlot:
        """Return the slot of parameter `i`: gradients are bound to `gradients`, other operands to the outputs."""
        arguments: list[Tensor | Workspace] = []
        aligned = True
        for index in range(i, len(self._tensors), self._count):
            output = index if index < self._count else index - self._count
            is_gradient = index // self._count == _GRADIENT
            argument = gradients[index] if is_gradient else Tensor(len(self._inputs) + output)
            spec = self._tensors[index] if is_gradient else self._outputs[output]
            aligned = aligned and (spec.aligned or isinstance(argument, Workspace))
            arguments.append(argument)
        own = (Tensor(len(self._tensors) + i),) if len(self._counts) > 1 else ()
        return TensorSlot((*arguments, *own), self._tensors[i].size, aligned)

    def steps(self, kinds: tuple[DType, ...], first_number: int) -> tuple[RuleProgram, SlotSteps]:
        """Return the rule for these dtypes; numbers computed on the host are arguments starting at `first_number`."""
        count = self._counts[0] if self._counts else None
        program = self._rule.program(kinds, None if count is None else count.dtype, self._params)
        operands = [SlotOperand(f"q{k}", kind, k == _GRADIENT) for k, kind in enumerate(kinds)]
        shared: list[Tensor | Scalar] = [Scalar(first_number + i) for i in range(program.count)]
        inputs: list[Spec | ScalarSpec] = [contiguous(kind, (1,)) for kind in kinds]
        if count is not None:
            inputs.append(count)
            if len(self._counts) > 1:
                operands.append(SlotOperand(f"q{len(kinds)}", count.dtype, True, "single"))
            else:
                shared.insert(0, Tensor(len(self._tensors)))
        inputs += [ScalarSpec(program.wide)] * program.count
        updated = [k for k in range(len(kinds)) if k != _GRADIENT]
        writes = tuple(zip(updated, program.results, strict=True))
        return program, SlotSteps(tuple(operands), tuple(inputs), tuple(shared), program.steps, writes, relaxed=True)


def _with_numbers(program: RuleProgram, launch: Launch, first: int, end: int, total: int) -> SimpleLaunch:
    """Run `launch` with the host's numbers appended to the `total` arguments; the rule's own are `first` to `end`."""

    def run(*args: Any) -> None:
        launch(*args[:total], *derive(program.numbers, args[first:end], program.count))

    return SimpleLaunch(launch.name, run)
