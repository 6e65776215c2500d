"""Regions whose saved values are let go after the forward pass, and computed again when the backward pass asks for them.

Source: Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from polyhal.autograd.modes import enable_grad
from polyhal.autograd.tape import Node, SavedInput
from polyhal.hal import dispatch
from polyhal.hal.errors import AutogradError, message

if TYPE_CHECKING:
    from polyhal.amp.autocast import autocast

P = ParamSpec("P")
R = TypeVar("R")


def checkpoint(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """`function(*args, **kwargs)`, of which only the arguments and the results are kept for the backward pass.

    The backward pass runs `function` once more, with the same random numbers, and gets the same gradients to the last bit.
    So `function` must do the same when it runs again; what it changes in place, such as running statistics, is changed twice.
    Works in eager mode and in captured steps, nests, and allows gradients of gradients. Raises AutogradError in the backward
    pass if the function did something else, or if what it reads was changed in place in between.
    """
    if not dispatch.thread.grad_enabled:
        return function(*args, **kwargs)
    region = Region(lambda: function(*args, **kwargs))
    return region.run()  # type: ignore[no-any-return]


class Region:
    """One checkpointed call: how to run it again, and what its nodes saved when it last ran."""

    def __init__(self, call: Callable[[], Any]) -> None:
        from polyhal.amp.autocast import autocast_dtype

        self._call = call
        self._parent: dispatch.CheckpointRegion | None = None
        self._casts_to = autocast_dtype()
        self._device = dispatch.thread.device
        self._draws: list[Any] = []
        self._replayed: list[dict[str, Any] | None] | None = None
        """What the nodes saved in a second run, None once it was fetched; None in the first run and before."""
        self._nodes: list[tuple[Any, tuple[Any, ...], tuple[int, ...]]] = []
        """Op, parameters and versions of the leaves that were read, of each node of the first run."""
        self._position = 0
        self._differentiable = False

    def run(self) -> Any:
        """The first run, in which saved values are let go."""
        return self._inside(self._call)

    def _inside(self, call: Callable[[], Any]) -> Any:
        self._parent, dispatch.thread.region = dispatch.thread.region, self
        try:
            return call()
        finally:
            dispatch.thread.region, self._parent = self._parent, None

    def add(self, node: Node) -> None:
        """Take note of a node that was just written on the tape."""
        kind = (node.op, node.params, _versions(node))
        if self._replayed is None:
            if node.saved:
                node.region = self, len(self._nodes)
                node.saved = {}
            self._nodes.append(kind)
            return
        place = len(self._replayed)
        if place >= len(self._nodes) or self._nodes[place][:2] != kind[:2]:
            raise self._differs(f"op {place} was {self._name(place)}, now {node.op.name} with {node.params}")
        if self._nodes[place][2] != kind[2]:
            raise self._differs(f"an input of {node.op.name} was changed in place in between")
        self._replayed.append(node.saved)
        # The second run's own nodes need what they saved only where the gradient is differentiated again.
        node.saved = dict(node.saved) if self._differentiable else {}

    def draw(self, take: Callable[[], Any]) -> Any:
        """Random numbers: new ones in the first run, the same again in a second one."""
        if self._replayed is None:
            numbers = take() if self._parent is None else self._parent.draw(take)
            self._draws.append(numbers)
            return numbers
        if self._position >= len(self._draws):
            raise self._differs("more random numbers were drawn")
        self._position += 1
        return self._draws[self._position - 1]

    def saved(self, place: int) -> dict[str, Any]:
        """What the node at `place` saves. Runs the region again if that is not known."""
        found = None if self._replayed is None else self._replayed[place]
        if found is None:
            self._replayed = found_again = self._replay()
            found = found_again[place]
        assert self._replayed is not None
        assert found is not None
        self._replayed[place] = None
        return found

    def _replay(self) -> list[dict[str, Any] | None]:
        found = self._replayed = []
        self._position = 0
        self._differentiable = dispatch.thread.grad_enabled
        again = dispatch.thread.executor.recomputing()
        with again, enable_grad(), dispatch.default_device(self._device), self._casting():
            self._inside(self._call)
        if len(found) != len(self._nodes):
            raise self._differs(f"{len(self._nodes)} ops were recorded, now {len(found)}")
        return found

    def _casting(self) -> autocast:
        from polyhal.amp.autocast import autocast

        return autocast(enabled=False) if self._casts_to is None else autocast(self._casts_to)

    def _name(self, place: int) -> str:
        return f"{self._nodes[place][0].name} with {self._nodes[place][1]}" if place < len(self._nodes) else "none"

    def _differs(self, what: str) -> AutogradError:
        self._replayed = None
        return AutogradError(
            message(
                "checkpoint",
                f"the function did something else when it ran again: {what}",
                expected="the same ops on the same values",
                fix="leave what changes from call to call out of the function, or pass it as an argument",
            )
        )


def _versions(node: Node) -> tuple[int, ...]:
    """The versions of the leaves that a node saved."""
    found: list[int] = []
    for saved in node.saved.values():
        several = saved if type(saved) is tuple else (saved,)
        found += [s.version for s in several if isinstance(s, SavedInput) and s.tensor.node is None]
    return tuple(found)
