"""Differentiable in-place writes of a captured step to memory from outside: each run records them on the tape.

The memory belongs to arguments or to captured tensors. All tensors that share it get the new node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from polyhal.hal.layout import Ref, Spec
from polyhal.tape.rebase import History, TapePlace, base_of, history_of, rebase
from polyhal.tensor import Tensor, wrap


class WrittenMemory(NamedTuple):
    """A piece of memory that a step writes to, and the tensors over it."""

    tensors: Sequence[int | Tensor]
    """Positions of arguments that share the memory, or captured tensors that share it."""
    spec: Spec
    distance: int
    """Elements from the first tensor's first element to the memory's first element."""

    def find(self, arguments: Sequence[Tensor]) -> FoundMemory:
        """Return the memory in a run. Raises AutogradError for leaves that require gradients."""
        tensors = [arguments[x] if isinstance(x, int) else x for x in self.tensors]
        x = tensors[0]
        whole = wrap(x.device, x.buffer, Ref(x.ref.handle, self.spec, x.ref.offset + self.distance))
        whole.index = min(x.index, 0)
        return FoundMemory(whole, base_of(x if x.node is not None else whole, "jit"), tensors)


class FoundMemory(NamedTuple):
    """Written memory in one run."""

    whole: Tensor
    """A tensor that spans the memory."""
    base: History
    """History of the memory before the run."""
    tensors: list[Tensor]

    def replace(self, value: Tensor) -> None:
        """Record that the memory was replaced by `value`, which has the same elements."""
        rebase(self.whole, self.base, value, is_result=True, others=self.tensors)


def written_by(
    places: Sequence[TapePlace], arguments: Sequence[Tensor], is_new: Callable[[Tensor], bool]
) -> tuple[list[WrittenMemory], list[Tensor]]:
    """Return descriptions of the memory that a recording wrote to on the tape, and tensors of the final contents.

    `places` are the states of tensors before the recording. `is_new` returns True for tensors that the recording created.
    """
    positions = {id(x): i for i, x in enumerate(arguments)}
    groups: dict[tuple[int, int, int], list[Tensor]] = {}
    for place in places:
        x = place.tensor
        history = None if is_new(x) else history_of(x)
        if history is not None and history.node is not None and x.node is not place.node:
            groups.setdefault((id(x.buffer), id(history.node), history.output), []).append(x)
    written, contents = [], []
    for seen in groups.values():
        # Each call may have another buffer, which lists its other tensors as views.
        tensors = [x for x in seen if id(x) in positions] or seen
        history = history_of(tensors[0])
        assert history is not None
        distance = history.offset - tensors[0].ref.offset
        written.append(WrittenMemory([positions.get(id(x), x) for x in tensors], history.spec, distance))
        contents.append(history.tensor(tensors[0]))
    return written, contents
