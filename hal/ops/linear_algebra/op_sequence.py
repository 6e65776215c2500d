"""A sequence of ops on the inputs of a call, planned from their specs once and then applied to any tensors like them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from polyhal.hal.core import dispatch
from polyhal.hal.layout import Spec, contiguous, place
from polyhal.hal.ops.opdef import OpFunction
from polyhal.hal.ops.tensor_like import TensorLike


class OpStep(NamedTuple):
    """One op, applied to values by number."""

    op: OpFunction
    inputs: tuple[int, ...]
    params: tuple[Any, ...]


class OpSequence:
    """Ops in order. Values are numbered: the inputs, then the result of each step."""

    def __init__(self, inputs: Sequence[Spec]) -> None:
        self.specs = list(inputs)
        """Dtype, shape and strides of each value."""
        self.steps: list[OpStep] = []
        self.result = 0
        """The value that `run` returns."""

    def add(self, op: OpFunction, inputs: tuple[int, ...], *params: Any) -> int:
        """Append an op with one result, and return the number of that. Raises ShapeError if the op refuses its inputs."""
        specs = tuple(self.specs[i] for i in inputs)
        bound = op.op.bind((*params, *list(op.op.schema.params.values())[len(params) :]))
        ((dtype, shape),) = dispatch.infer(op.op, specs, bound)
        view = op.op.view_of(specs[0], bound)
        self.specs.append(contiguous(dtype, shape) if view is None else place(specs[0], view))
        self.steps.append(OpStep(op, inputs, params))
        return len(self.specs) - 1

    def run(self, tensors: Sequence[TensorLike]) -> Any:
        """Apply the ops to tensors with the specs of the inputs."""
        values = list(tensors)
        for op, inputs, params in self.steps:
            values.append(op(*[values[i] for i in inputs], *params))
        return values[self.result]
