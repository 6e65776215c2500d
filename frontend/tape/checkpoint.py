"""Gradient checkpointing: saved values are dropped after the forward pass and computed again for the backward pass.

Source: Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

from polyhal.hal.core import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.mixed_precision import autocast, autocast_dtype
from polyhal.tape.modes import enable_grad
from polyhal.tape.tape import GradNode, holds_memory

if TYPE_CHECKING:
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


_PYTORCH_KEYWORDS = {"use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop"}


def checkpoint(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return `function(*args, **kwargs)`, keeping only its arguments and results for the backward pass.

    The backward pass runs `function` once more, with the same random numbers, and computes the same gradients to the last bit.
    So `function` must do the same when it runs again; changes in place, for example of running statistics, happen twice.
    Works in eager mode and in captured steps, nests, and allows gradients of gradients. Raises AutogradError in the backward
    pass if the function did something else, or if an input was changed in place in between.

    PyTorch's keywords `use_reentrant`, `preserve_rng_state`, `determinism_check`, `debug` and `early_stop` are ignored:
    random numbers are always the same, and a run that differs is always noticed. The function does not receive them.
    """
    for name in _PYTORCH_KEYWORDS & kwargs.keys():
        del kwargs[name]
    if not dispatch.thread.grad_enabled:
        return function(*args, **kwargs)
    return Region(lambda: function(*args, **kwargs)).run()


class _NodeRecord(NamedTuple):
    """Properties of a node that must be equal when the function runs again."""

    op: OpDef
    params: tuple[Any, ...]
    versions: tuple[int, ...]
    """Versions of the memory of the op's inputs, which are equal in both runs unless something else wrote in between."""


class Region(Generic[R]):
    """One checkpointed call: the function to run again, and the saved values of its nodes in the last run."""

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._parent: dispatch.CheckpointRegion | None = None
        self._autocast_dtype = autocast_dtype()
        self._device = dispatch.thread.device
        self._draws: list[Any] = []
        """The random numbers of the first run, in order."""
        self._next_draw = 0
        self._nodes: list[_NodeRecord] = []
        """The nodes of the first run."""
        self._recomputed: dict[int, dict[str, Any]] | None = None
        """Saved values of each node in the last run, by position, until they are fetched; None before the first later run."""
        self._next_node = 0
        """The position of the next node of a later run."""
        self._differentiable = False
        """True if gradients of gradients are needed, so that a later run is on the tape itself."""

    def run(self) -> R:
        """Run the function for the first time, dropping the saved values of its nodes."""
        return self._within(self._call)

    def add(self, node: GradNode, inputs: tuple[Tensor, ...]) -> None:
        """Note a node that was just put on the tape, and the inputs of its op."""
        versions = tuple(x.buffer.version for x in inputs if hasattr(x, "ref"))
        record = _NodeRecord(node.op, node.params, versions)
        if self._recomputed is None:
            if any(map(holds_memory, node.saved.values())):  # others need no second run
                node.region = self, len(self._nodes)
                node.saved = {}
            self._nodes.append(record)
            return
        position = self._next_node
        if position >= len(self._nodes) or self._nodes[position][:2] != record[:2]:
            raise self._mismatch(f"op {position} was {self._name(position)}, now {node.op.name} with {node.params}")
        if self._nodes[position].versions != record.versions:
            raise self._mismatch(f"an input of {node.op.name} was changed in place in between")
        self._recomputed[position] = node.saved
        self._next_node += 1
        # The nodes of a later run need their saved values only if the gradient is differentiated again.
        node.saved = dict(node.saved) if self._differentiable else {}

    def draw(self, take: Callable[[], Any]) -> Any:
        """Return new random numbers in the first run, and the same again in later ones."""
        if self._recomputed is None:
            numbers = take() if self._parent is None else self._parent.draw(take)
            self._draws.append(numbers)
            return numbers
        if self._next_draw >= len(self._draws):
            raise self._mismatch("more random numbers were drawn")
        self._next_draw += 1
        return self._draws[self._next_draw - 1]

    def saved(self, position: int) -> dict[str, Any]:
        """Return the saved values of the node at `position`. Runs the function again if they were fetched or never computed."""
        recomputed = self._recomputed
        if recomputed is None or position not in recomputed:
            recomputed = self._recompute()
        return recomputed.pop(position)

    def forget(self) -> None:
        """Drop the values of a later run, which may belong to an abandoned recording."""
        if self._recomputed is not None:
            self._recomputed = {}

    def _recompute(self) -> dict[int, dict[str, Any]]:
        recomputed = self._recomputed = {}
        self._next_node = self._next_draw = 0
        self._differentiable = dispatch.thread.grad_enabled
        recorder = dispatch.thread.executor.recorder
        recomputing = nullcontext() if recorder is None else recorder.recomputing()
        with recomputing, enable_grad(), dispatch.default_device(self._device), self._autocast():
            self._within(self._call)
        if self._next_node != len(self._nodes):
            raise self._mismatch(f"{len(self._nodes)} ops were recorded, now {self._next_node}")
        return recomputed

    def _within(self, call: Callable[[], R]) -> R:
        self._parent, dispatch.thread.region = dispatch.thread.region, self
        try:
            return call()
        finally:
            dispatch.thread.region, self._parent = self._parent, None

    def _autocast(self) -> autocast:
        """Return the autocast mode of the first run."""
        return autocast(enabled=False) if self._autocast_dtype is None else autocast(self._autocast_dtype)

    def _name(self, position: int) -> str:
        if position >= len(self._nodes):
            return "none"
        return f"{self._nodes[position].op.name} with {self._nodes[position].params}"

    def _mismatch(self, problem: str) -> AutogradError:
        self._recomputed = None
        return AutogradError(
            message(
                "checkpoint",
                f"the function did something else when it ran again: {problem}",
                expected="the same ops on the same values",
                fix="leave what changes from call to call out of the function, or pass it as an argument",
            )
        )
