"""Results of a captured function that are not in new memory: its arguments, tensors that it refers to, and views of both.

A run returns the argument itself, or a view of it, as an eager call does: the result shares its memory and its place on the
tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.hal.compile.capture.fake_buffer import FakeBuffer
from polyhal.hal.core import dispatch
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops.opdef import OpDef
from polyhal.tape.rebase import detached_index, follow, history_of, note_view, refreshed
from polyhal.tensor import Tensor, wrap


@dataclass(frozen=True, slots=True)
class GivenTensor:
    """Description of a result that a run finds instead of computing it."""

    source: int | Tensor | NewLeaf
    """The position of an argument, a captured tensor, or a leaf that the function creates."""
    spec: Spec
    distance: int
    """Elements between the first element of the source and the first element of the result."""
    views: tuple[tuple[OpDef, tuple[Any, ...]], ...] = ()
    """The views on the tape that lead from the source to the result, as ops and their parameters."""
    is_source: bool = False
    """True if the result is the source itself."""
    follows: bool = False
    """True if the function wrote to the memory: each run then creates a node of the result for the new contents."""
    detached: bool = False
    requires_grad: bool = False
    """True if the function made a leaf of it, which is a new one in each run."""

    def find(self, arguments: Sequence[Tensor], leaves: Sequence[Tensor] = ()) -> Tensor:
        """Return the result of a run with these arguments and new leaves."""
        source = self.source
        x = (
            source
            if isinstance(source, Tensor)
            else arguments[source]
            if isinstance(source, int)
            else leaves[source.index]
        )
        if self.is_source:
            return x
        if self.views:
            for op, params in self.views:
                x = dispatch.apply(op, (x,), params)
            return x
        out = wrap(x.device, x.buffer, Ref(x.ref.handle, self.spec, x.ref.offset + self.distance))
        if self.follows:
            return follow(out, x)
        out.requires_grad = self.requires_grad
        if self.detached:
            out.index = detached_index()
        elif dispatch.thread.grad_enabled and not x.requires_grad:
            note_view(x, out)
        return out


@dataclass(frozen=True, slots=True)
class NewLeaf:
    """Placeholder of a leaf that the function creates in older memory, by its number among these leaves."""

    index: int
    given: GivenTensor
    """Description by which a run creates it."""


def given(
    x: Tensor, arguments: Sequence[Tensor], new_leaf: Callable[[Tensor], NewLeaf | None], *, is_new: bool = False
) -> GivenTensor | None:
    """Describe how a run finds a result that the function returned with these arguments; None for values that ops computed.

    `is_new` is True if the function created the tensor, possibly in older memory. `new_leaf` returns the placeholder of a leaf
    that the function created, and None for other tensors.
    """
    position = _position(x, arguments)
    if position is not None:
        return GivenTensor(position, x.spec, 0, is_source=True)
    on_tape = _on_tape(refreshed(x), arguments, new_leaf)
    if on_tape is not None:
        return on_tape
    if x.node is not None:
        return _in_written_memory(x, arguments, is_new=is_new)
    for i, other in enumerate(arguments):
        if other.buffer is x.buffer:
            detached = x.index < 0 or other.requires_grad
            distance = x.ref.offset - other.ref.offset
            return GivenTensor(i, x.spec, distance, detached=detached, requires_grad=x.requires_grad)
    if is_new:
        return GivenTensor(x, x.spec, 0, detached=x.index < 0, requires_grad=x.requires_grad)
    return None


def _in_written_memory(x: Tensor, arguments: Sequence[Tensor], *, is_new: bool) -> GivenTensor | None:
    """Describe a result over memory from outside that the function wrote to; None for other memory."""
    history = None if isinstance(x.buffer, FakeBuffer) else history_of(x)
    if history is None:
        return None
    for i, other in enumerate(arguments):
        if other.buffer is x.buffer and history_of(other) is history:
            return GivenTensor(i, x.spec, x.ref.offset - other.ref.offset, follows=True)
    is_shared = history is getattr(x.buffer, "history", None)
    return GivenTensor(x, x.spec, 0, follows=True) if is_new and is_shared else None


def _on_tape(
    x: Tensor, arguments: Sequence[Tensor], new_leaf: Callable[[Tensor], NewLeaf | None]
) -> GivenTensor | None:
    """Describe a result by the views on the tape that lead to it from an argument or a leaf; None if an op is among them."""
    views: list[tuple[OpDef, tuple[Any, ...]]] = []
    node, output = x.node, x.index
    while node is not None:
        owner = next((i for i, a in enumerate(arguments) if a.node is node and a.index == output), None)
        if owner is not None:
            return _view(x, owner, arguments[owner], views)
        parent = node.parents[0] if node.is_view else None
        if parent is None:
            return None
        views.append((node.op, node.params))
        if isinstance(parent, Tensor):
            position = _position(parent, arguments)
            source = (new_leaf(parent) or parent) if position is None else position
            return _view(x, source, parent, views)
        node, output = parent
    return None


def _view(x: Tensor, source: int | Tensor | NewLeaf, base: Tensor, views: Sequence[Any]) -> GivenTensor | None:
    if base.buffer is not x.buffer:  # a reshape on the way made a copy
        return None
    distance = x.ref.offset - base.ref.offset
    return GivenTensor(source, x.spec, distance, tuple(reversed(views)), follows=not views)


def _position(x: Tensor, arguments: Sequence[Tensor]) -> int | None:
    return next((i for i, other in enumerate(arguments) if other is x), None)
