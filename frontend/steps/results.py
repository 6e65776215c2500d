"""Structure of the results of a captured function: a tree that each run fills with new tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.hal.compile.capture.fake_buffer import FakeBuffer
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.steps.given import GivenTensor, NewLeaf, given
from polyhal.steps.tree import TREE, map_tree
from polyhal.tensor import Tensor


@dataclass(frozen=True, slots=True)
class OutputIndex:
    """Placeholder of a tensor in a structure: the index of an output of the graph."""

    index: int


@dataclass(frozen=True, slots=True)
class WithGradient:
    """Placeholder of a tensor with a `.grad`, both created by a run."""

    tensor: OutputIndex | NewLeaf
    gradient: Any
    """Placeholder of the `.grad`."""


def flatten_results(
    value: Any,
    add: Callable[[Tensor], int],
    arguments: Sequence[Tensor] = (),
    is_new: Callable[[Tensor], bool] = lambda x: False,
    new_leaves: list[tuple[Tensor, GivenTensor]] | None = None,
) -> Any:
    """Return `value` with tensors that a run makes replaced by the numbers that `add` assigns, each tensor by one.

    `arguments` are the tensors that the step was called with; each run finds them and views of them again. Other tensors with
    memory are constants of the structure, unless the function made them (`is_new`). Leaves that it made over older memory are
    added to `new_leaves`.
    """
    made: dict[int, OutputIndex | NewLeaf] = {}

    def leaf(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        place = tensor(x)
        if isinstance(place, (OutputIndex, NewLeaf)) and x.stored_grad is not None:
            return WithGradient(place, leaf(x.stored_grad))
        return place

    def new_leaf(x: Tensor) -> NewLeaf | None:
        place = tensor(x) if is_new(x) else None
        return place if isinstance(place, NewLeaf) else None

    def tensor(x: Tensor) -> Any:
        if id(x) in made:
            return made[id(x)]
        found = None if isinstance(x.buffer, FakeBuffer) else given(x, arguments, new_leaf, is_new=is_new(x))
        if found is not None and found.requires_grad and new_leaves is not None:
            new_leaves.append((x, found))
            made[id(x)] = NewLeaf(len(new_leaves) - 1, found)
            return made[id(x)]
        if found is not None:
            return found
        if not isinstance(x.buffer, FakeBuffer) and (x.node is None or not is_new(x)):
            return x
        made[id(x)] = OutputIndex(add(x))
        return made[id(x)]

    return map_tree(value, leaf)


def constants(structure: Any) -> list[Any]:
    """Return the numbers and strings in a structure, in order; None for other leaves."""
    return [x if type(x) in (bool, int, float, str) else None for x in TREE.leaves(structure)]


def fill_results(
    structure: Any, outputs: Sequence[Tensor], arguments: Sequence[Tensor] = (), leaves: Sequence[Tensor] = ()
) -> Any:
    """Return the structure with the outputs of a run, its arguments and new leaves, and current runtime scalars."""
    if type(structure) is OutputIndex:  # most steps return one tensor
        return outputs[structure.index]

    return map_tree(structure, lambda x: _filled(x, outputs, arguments, leaves))


def _filled(x: Any, outputs: Sequence[Tensor], arguments: Sequence[Tensor], leaves: Sequence[Tensor]) -> Any:
    """Return a placeholder's tensor or scalar. Not a closure that calls itself, a cycle that would keep the outputs."""
    kind = type(x)
    if kind is OutputIndex:
        return outputs[x.index]
    if kind is NewLeaf:
        return leaves[x.index]
    if kind is GivenTensor:
        return x.find(arguments, leaves)
    if kind is WithGradient:
        result = _filled(x.tensor, outputs, arguments, leaves)
        result.stored_grad = _filled(x.gradient, outputs, arguments, leaves)
        return result
    return x.value if kind is RuntimeScalar else x
