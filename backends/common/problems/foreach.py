"""`foreach_elementwise` as steps on slots: one slot for each position of its lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polyhal.backends.common.codegen.elementwise import ExpressionStep
from polyhal.backends.common.codegen.expressions import RELAXED
from polyhal.backends.common.launching.launch import Scalar, Tensor
from polyhal.backends.common.problems.multi_tensor import SlotOperand, SlotSteps, TensorSlot, too_large
from polyhal.hal.layout import Spec
from polyhal.hal.ops.pointwise.foreach_elementwise import list_access, rows, sums_of
from polyhal.hal.protocol import Declined, InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


def slots_of(
    inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], params: Params
) -> tuple[SlotSteps, list[TensorSlot]] | Declined:
    """Return the steps and slots of a call: a slot has the tensors at one index of the lists, then of the results."""
    lists, count = params["lists"], params["count"]
    tensors = [s for s in (*inputs[: lists * count], *outputs) if isinstance(s, Spec)]
    if not all(s.is_contiguous for s in tensors) or too_large(tensors):
        return Declined("a tensor is not contiguous, or too large")
    first = next(rows(inputs, lists, count))
    access = list_access(tuple(inputs), lists, count)
    read = [SlotOperand(f"q{i}", s.dtype, True, access[i]) for i, s in enumerate(first[:lists]) if s is not None]
    lists_written = len(params["results"])
    written = [SlotOperand(f"q{len(first) + i}", outputs[i * count].dtype) for i in range(lists_written)]
    end = len(inputs) + len(outputs)
    shared = [Tensor(i) if isinstance(inputs[i], Spec) else Scalar(i) for i in range(lists * count, len(inputs))]
    writes = tuple((lists + i, value) for i, value in enumerate(params["results"]))
    sums = sums_of(params)
    vectors = tuple(map(Tensor, range(end - len(sums), end)))
    steps = SlotSteps(
        (*read, *written), first, tuple(shared), params["steps"], writes, sums, vectors, first_workspace=end
    )
    return steps, [_slot(inputs, outputs, params, i, access) for i in range(count)]


def _slot(
    inputs: Sequence[InputSpec | None], outputs: Sequence[Spec], params: Params, i: int, access: Sequence[str]
) -> TensorSlot:
    """Return the tensors at index `i` of the lists, then of the results."""
    lists, count = params["lists"], params["count"]
    read = range(i, lists * count, count)
    written = range(i, count * len(params["results"]), count)
    of_elements = (inputs[k] for k in read if access[k // count] == "elements")
    specs = [s for s in (*of_elements, *(outputs[k] for k in written)) if isinstance(s, Spec)]
    operands = (Tensor(k) if isinstance(inputs[k], Spec) else Scalar(k) for k in read)
    arguments = (*operands, *(Tensor(len(inputs) + k) for k in written))
    rows, columns = specs[0].shape[-2:] if specs[0].ndim > 1 else (1, 1)
    return TensorSlot(arguments, specs[0].size, all(s.aligned for s in specs), rows, columns)


def leading(steps: Sequence[ExpressionStep], of_elements: Collection[int]) -> int:
    """Return the number of leading steps that do not depend on the inputs `of_elements`, and can be hoisted out of the loop."""
    for number, step in enumerate(steps):
        if not set(of_elements).isdisjoint(step.arguments):
            return number
    return len(steps)


def products_in_sums(steps: Sequence[ExpressionStep], inputs: int, kept: Collection[int]) -> set[int]:
    """Return the products with a single consumer, a sum, which a processor may fuse with a single rounding (FMA).

    A product from which another is subtracted is excluded, and so are values in `kept`.
    """
    uses = Counter(a for step in steps for a in step.arguments)
    taken = {a for step in steps if step.op in ("add", "subtract") for a in step.arguments[step.op == "subtract" :]}
    return {
        inputs + i
        for i, step in enumerate(steps)
        if step.op == "multiply" and inputs + i in taken and uses[inputs + i] == 1 and inputs + i not in kept
    }


def relaxed(steps: Sequence[ExpressionStep]) -> list[ExpressionStep]:
    """Return steps whose quotients are rounded as the device does."""
    return [replace(s, op=RELAXED.get(s.op, s.op)) for s in steps]
