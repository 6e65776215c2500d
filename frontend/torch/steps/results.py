"""Results of a recorded step: a tree that each run fills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from polyhal.hal.compile.capture.difference import RETURNS_NUMBERS, Difference
from polyhal.hal.compile.capture.fake_buffer import FakeBuffer
from polyhal.torch import private, tensors
from polyhal.torch.device import NAME
from polyhal.torch.steps.guards import SIMPLE
from polyhal.torch.steps.host import Slot, same
from polyhal.torch.steps.host_arrays import HostArray
from polyhal.torch.steps.numbers import LiveNumber
from polyhal.torch.steps.refusals import refusal
from polyhal.torch.steps.tree import TREE
from polyhal.torch.steps.watch import StepWatch


class Run(NamedTuple):
    """Values of one run."""

    arguments: Sequence[torch.Tensor]
    made: Sequence[Any]
    """Results of the graph, as arrays."""
    values: list[Any]
    """Values that the host program computed."""


class Filled:
    """A leaf of the results that each run computes."""

    __slots__ = ("get", "what")

    def __init__(self, get: Callable[[Run], Any], *what: Any) -> None:
        """Create a leaf with a function `get` of a run. Leaves of two recordings are equal if their descriptions `what` are."""
        self.get = get
        self.what = what


class Results:
    """Structure of the results of a step."""

    def __init__(self, value: Any, watch: StepWatch, arguments: Sequence[torch.Tensor]) -> None:
        """Describe `value`. Raises CaptureError for tensors whose gradients are still to be computed."""
        self._watch = watch
        self._arguments = {id(x): i for i, x in enumerate(arguments)}
        self._buffers = {id(tensors.root_of(x).buffer): i for i, x in reversed(list(enumerate(arguments)))}
        self._tensors = list(arguments)
        self._kept = {id(x.grad) for x, _ in watch.leaves.values() if x.grad is not None}
        self.count = 0
        self._leaves: dict[int, Any] = {}
        """Leaves of tensors by identity, so that a tensor returned twice is one object in each run, too."""
        self._is_repeated = False
        self.structure = TREE.map(value, self._leaf_once)
        self._tensors.clear()
        self._leaves.clear()
        del self._watch  # which keeps the recording

    def fill(self, run: Run) -> Any:
        """Return the results of one run."""
        if type(self.structure) is Filled:  # most steps return one tensor
            return self.structure.get(run)
        if not self._is_repeated:
            return TREE.map(self.structure, lambda x: x.get(run) if type(x) is Filled else x)
        filled: dict[int, Any] = {}

        def fill_once(x: Any) -> Any:
            if type(x) is not Filled:
                return x
            if id(x) not in filled:
                filled[id(x)] = x.get(run)
            return filled[id(x)]

        return TREE.map(self.structure, fill_once)

    def same_as(self, other: Results) -> bool:
        """Return whether another recording returns equal results."""
        mine, theirs = list(TREE.leaves(self.structure)), list(TREE.leaves(other.structure))
        return len(mine) == len(theirs) and all(
            a.what == b.what if type(a) is Filled and type(b) is Filled else same(a, b)
            for a, b in zip(mine, theirs, strict=True)
        )

    def difference(self, later: Results) -> Difference | None:
        """Return why a replay would not return the results of a later call; None if both recordings return equal results."""
        if self.same_as(later):
            return None
        for a, b in zip(TREE.leaves(self.structure), TREE.leaves(later.structure), strict=False):
            if type(a) is type(b) and not isinstance(a, (*SIMPLE, Filled, torch.Tensor)) and not same(a, b):
                return Difference(
                    f"the step returns another {type(a).__name__} at each call, which Python would have to make",
                    expected="tensors in lists, tuples, dictionaries and data classes",
                    fix="return the tensors that are needed, or make the object outside of the step and change it in place",
                )
        return RETURNS_NUMBERS

    def _leaf_once(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return self._leaf(x)
        if id(x) in self._leaves:
            self._is_repeated = True
        else:
            self._leaves[id(x)] = self._leaf(x)
        return self._leaves[id(x)]

    def _leaf(self, x: torch.Tensor | LiveNumber | HostArray) -> Any:
        if type(x) is LiveNumber:
            return Filled(lambda run: x.scalar.value, "number")
        if type(x) is HostArray:
            return self._on_host(x.slot)
        if not isinstance(x, torch.Tensor):
            return x
        if x.device.type == "cpu":
            place = self._watch.place(x)
            if not isinstance(place, Slot):
                return x
            self._check_gradient(x)
            return self._on_host(place)
        if x.device.type != NAME or id(x) in self._kept:
            return x
        position = self._arguments.get(id(x))
        if position is not None:
            return Filled(lambda run: run.arguments[position], "argument", position)
        self._check_gradient(x)
        if not isinstance(tensors.root_of(x).buffer, FakeBuffer):
            return self._outside(x)
        if x.is_complex():
            parts = self._made(torch.view_as_real(x.detach().resolve_conj()))
            return Filled(lambda run: torch.view_as_complex(parts.get(run)), *parts.what, "complex")
        return self._made(x)

    def _on_host(self, slot: Slot) -> Filled:
        """Return the value of a slot in each run."""
        self._watch.mid_step.keep(slot)
        return Filled(lambda run: run.values[slot.index], slot)

    def _made(self, x: torch.Tensor) -> Filled:
        """Add a real tensor to the results of the graph."""
        self._watch.recording.results([tensors.unwrap(x)])
        number = self.count
        self.count += 1
        return Filled(lambda run: tensors.wrap(run.made[number]), "made", number)

    def _outside(self, x: torch.Tensor) -> Any:
        """Describe a tensor that the step did not allocate: a view of an argument, or one tensor for all runs."""
        position = self._buffers.get(id(tensors.root_of(x).buffer))
        if position is None:
            return x.detach() if x.grad_fn is not None else x
        of_part = self._tensors[position].is_complex() and not x.is_complex()
        base = _parts(self._tensors[position]) if of_part else self._tensors[position]
        shape, strides = x.shape, x.stride()
        offset: Any = x.storage_offset() - base.storage_offset()
        is_conjugate, is_negative = x.is_conj() != base.is_conj(), x.is_neg() != base.is_neg()

        def view(run: Run) -> torch.Tensor:
            argument = run.arguments[position]
            out = private.reinterpret(_parts(argument) if of_part else argument, shape, strides, offset)
            out = out.conj() if is_conjugate else out
            return private.negative_view(out) if is_negative else out

        return Filled(view, "view", position, shape, strides, offset, of_part, is_conjugate, is_negative)

    def _check_gradient(self, x: torch.Tensor) -> None:
        if x.grad_fn is not None and x.grad_fn not in self._watch.differentiated:
            raise refusal(
                f"the step returns a tensor of shape {tuple(x.shape)} on which backward() may still be called",
                expected="backward() inside of the step, or no gradients at all",
                fix="call backward() inside, return x.detach(), or call the step under torch.no_grad()",
            )


def _parts(x: torch.Tensor) -> torch.Tensor:
    """Return the stored real and imaginary parts of complex numbers."""
    return torch.view_as_real(x.conj() if x.is_conj() else x)
