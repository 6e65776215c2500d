"""What a step does on the host: calls of PyTorch on CPU tensors and numbers, done again before each run.

Step counts of optimizers, schedules, and batches that are prepared on the CPU stay live in this way. Values that one
call makes for another lie in slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from polyhal.hal.capture.runtime_scalars import RuntimeScalar
from polyhal.torch.steps.numbers import LiveNumber


class NotReplayableError(Exception):
    """The step does what a replay would not repeat: it has to run as it stands."""

    def __init__(self, problem: str, fix: str = "", *, is_certain: bool = False) -> None:
        """`is_certain`: the next call will do it as well."""
        super().__init__(problem)
        self.fix = fix
        self.is_certain = is_certain


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for a value that a run makes: the one with this number."""

    index: int


class DecisionChangedError(Exception):
    """A run cannot take the path that was recorded: a number on which Python decided is another."""


class HostAction(NamedTuple):
    """One piece of work on the host. Two recordings did the same if what they did, `what`, is equal."""

    run: Callable[[], object]
    what: tuple[Any, ...]


class HostProgram:
    """The work of a step on the host, in order. CPU tensors that are neither arguments nor made in it are used as they are."""

    def __init__(self, arguments: int) -> None:
        """The first slots are those of the `arguments` of a call that are CPU tensors or floats."""
        self.values: list[Any] = [None] * arguments
        self.actions: list[HostAction] = []
        self.written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """CPU tensors from outside that the step writes to, with what they held before."""
        self.decides = False
        """Whether a run may turn out to take another path than the recorded one."""
        self.acts_outside = False
        """Whether it does what cannot be taken back, such as counting a scheduler on."""
        self._arguments = arguments

    def new_slot(self) -> Slot:
        """Room for another value."""
        self.values.append(None)
        return Slot(len(self.values) - 1)

    def add(self, run: Callable[[], object], *what: Any) -> None:
        """Append work that is equal to other work if `what` is."""
        self.actions.append(HostAction(run, what))

    def add_call(self, function: Callable[..., Any], args: Any, kwargs: Any, outputs: Sequence[Slot | None]) -> None:
        """Append a call. Tensors among its results go to `outputs`; numbers and slots among its arguments are looked up."""
        values = self.values
        is_fixed = not _contains_live((args, kwargs))

        def run() -> None:
            live, named = (args, kwargs) if is_fixed else (resolved(args, values), resolved(kwargs, values))
            result = function(*live, **named)
            made = result if isinstance(result, (tuple, list)) else (result,)
            for slot, x in zip(outputs, made, strict=False):
                if slot is not None:
                    values[slot.index] = x

        self.add(run, function, args, tuple(sorted(kwargs.items())), tuple(outputs))

    def add_number(self, compute: Callable[[list[Any]], Any], name: str, *what: Any) -> RuntimeScalar:
        """A number that is computed from the values at this point of each run."""
        scalar = RuntimeScalar(lambda: compute(self.values), name)
        self.add(scalar.refresh, "number", *what)
        return scalar

    def expect(self, compute: Callable[[], Any], outcome: Any) -> None:
        """Have each run stop at this point unless `compute()` gives `outcome`."""
        if self.acts_outside:
            problem = "Python decides by a number after a scheduler counted on"
            raise NotReplayableError(problem, "call scheduler.step() last", is_certain=True)
        self.decides = True

        def run() -> None:
            if compute() != outcome:
                raise DecisionChangedError

        self.add(run, "decision", outcome)

    def note_write(self, x: torch.Tensor) -> None:
        """Keep what a CPU tensor from outside holds before the first write to it."""
        if id(x) not in self.written:
            self.written[id(x)] = (x, x.detach().clone())

    def run(self, arguments: Sequence[Any]) -> None:
        """Do the work of one run. Raises DecisionChangedError, after taking back what was done."""
        self.values[: self._arguments] = arguments
        if not self.decides:
            for action in self.actions:
                action.run()
            return
        state = torch.get_rng_state()
        before = [(x, x.detach().clone()) for x, _ in self.written.values()]
        try:
            for action in self.actions:
                action.run()
        except DecisionChangedError:
            restore(before, state)
            raise

    def release(self) -> None:
        """Let go of the values of a run."""
        self.values[:] = [None] * len(self.values)

    def roll_back(self, random_state: torch.Tensor) -> None:
        """Give the CPU tensors that were written to while recording, and the CPU's random numbers, their former state."""
        restore(self.written.values(), random_state)

    def decides_otherwise(self, other: HostProgram) -> bool:
        """Whether another recording did the same up to a number by which Python decided otherwise."""
        for a, b in zip(self.actions, other.actions, strict=False):
            if not same(a.what, b.what):
                return bool(a.what[0] == b.what[0] == "decision")
        return False

    def same_as(self, other: HostProgram) -> bool:
        """Whether another recording did the same on the host."""
        return len(self.actions) == len(other.actions) and all(
            same(a.what, b.what) for a, b in zip(self.actions, other.actions, strict=True)
        )


def restore(tensors: Any, random_state: torch.Tensor) -> None:
    """Give CPU tensors what they held before, and the CPU's random numbers their state."""
    with torch.no_grad():
        for x, before in tensors:
            x.detach().copy_(before)
    torch.set_rng_state(random_state)


def resolved(x: Any, values: list[Any]) -> Any:
    """`x` with slots and live numbers replaced by their present values."""
    kind = type(x)
    if kind is Slot:
        return values[x.index]
    if kind is LiveNumber:
        return x.scalar.value
    if kind in (list, tuple):
        return kind([resolved(v, values) for v in x])
    return {k: resolved(v, values) for k, v in x.items()} if kind is dict else x


def _contains_live(x: Any) -> bool:
    if isinstance(x, (Slot, LiveNumber)):
        return True
    if isinstance(x, dict):
        return any(map(_contains_live, x.values()))
    return isinstance(x, (list, tuple)) and any(map(_contains_live, x))


def same(a: Any, b: Any) -> bool:
    """Whether two pieces of recorded work, or results, are equal: numbers by value, tensors from outside by memory."""
    if isinstance(a, LiveNumber) or isinstance(b, LiveNumber):
        return type(a) is type(b)
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a is b or (a.device == b.device and a.shape == b.shape and _lies_with(a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, float) and a != a:
        return b != b  # type: ignore[no-any-return]
    return a is b or _equal(a, b)


def _lies_with(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.storage_offset() == b.storage_offset()


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    compare: Any = type(a).__eq__
    return compare is not object.__eq__ and bool(a == b)
