"""The structure of what a captured function returns: a tree that each run fills with new tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.hal.capture.fake_buffer import FakeBuffer
from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.steps.tree import map_tree
from polyhal.tensor import Tensor


@dataclass(frozen=True, slots=True)
class OutputIndex:
    """Stands for a tensor in a structure: the output of the graph with that number."""

    index: int


def flatten_results(value: Any, add: Callable[[Tensor], int], arguments: Collection[int] = ()) -> Any:
    """Return `value` with tensors that a run makes replaced by the numbers that `add` assigns.

    `arguments` are the buffers of the step's inputs, by identity. Other tensors with memory are constants of the structure.
    """

    def leaf(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        is_made = isinstance(x.buffer, FakeBuffer) or id(x.buffer) in arguments
        return OutputIndex(add(x)) if is_made else x

    return map_tree(value, leaf)


def fill_results(structure: Any, outputs: Sequence[Tensor]) -> Any:
    """Return the structure with the outputs of a run, and with present values of runtime scalars."""
    if type(structure) is OutputIndex:  # most steps return one tensor
        return outputs[structure.index]

    def leaf(x: Any) -> Any:
        if type(x) is OutputIndex:
            return outputs[x.index]
        return x.value if isinstance(x, RuntimeScalar) else x

    return map_tree(structure, leaf)
