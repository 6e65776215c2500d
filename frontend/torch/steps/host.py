"""Host program of a step: PyTorch calls on CPU tensors and numbers, repeated before each run.

This keeps step counts of optimizers, schedules, and batches that are prepared on the CPU up to date. Values that one call
computes for another are stored in slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from polyhal.hal.compile.capture.replay_cache import NotReplayableError
from polyhal.hal.compile.capture.replay_log import PathChangedError
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.torch.steps.numbers import LiveNumber

_PUT_OFF, _NUMBER = "put off", "number"
"""Kinds of actions that recording does not execute, and that compute a number."""


def raise_reason(reason: NotReplayableError) -> None:
    """Raise a reason for which a call is not recorded, where the recording cannot end early."""
    raise reason


@dataclass(frozen=True, slots=True)
class Slot:
    """Placeholder of a value that each run computes: an index into `HostProgram.values`."""

    index: int


class Literal:
    """A CPU tensor that PyTorch makes of a number, such as 0.1 in `x[0] = 0.1`. Equal elements make equal literals."""

    __slots__ = ("x",)

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x.clone()

    def made(self) -> torch.Tensor:
        """Return a new tensor."""
        return self.x.clone()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.x.dtype == other.x.dtype and self._bytes() == other._bytes()

    __hash__ = None  # type: ignore[assignment]

    def _bytes(self) -> bytes:
        return self.x.reshape(-1).view(torch.uint8).numpy().tobytes()


class HostAction(NamedTuple):
    """One action on the host. Actions of two recordings are equal if their `what` is equal."""

    run: Callable[[], object]
    what: tuple[Any, ...]


class HostProgram:
    """Host actions of a step, in order. Other CPU tensors than arguments and results of the step are used directly."""

    def __init__(self, arguments: int) -> None:
        """Reserve the first slots for the `arguments` of a call that are CPU tensors or floats."""
        self.values: list[Any] = [None] * arguments
        self.actions: list[HostAction] = []
        self.written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """CPU tensors from outside that the step writes to, with copies of their former elements."""
        self.draws = False
        """True if the step draws random numbers of the CPU, which other threads may draw meanwhile."""
        self.decides = False
        """True if Python branches on a number, so that a run may differ from the recorded path."""
        self.decides_late = False
        """True if Python branches on an element of a tensor of the device, which is checked after the actions of a run."""
        self.acts_outside = False
        """True if the step has an effect that cannot be undone, such as advancing a scheduler."""
        self.leave: Callable[[NotReplayableError], None] = raise_reason
        """Function that ends the recording early."""
        self.on_run: Callable[[], None] = lambda: None
        """Function that is called before each run."""
        self._arguments = arguments
        self._outside: int | None = None
        """Position of the first action outside of the step."""
        self._before: tuple[list[tuple[torch.Tensor, torch.Tensor]], torch.Tensor | None] = [], None
        """CPU tensors that the step writes to, with copies of their elements before the run, and state of random numbers."""

    def new_slot(self) -> Slot:
        """Reserve a slot for another value."""
        self.values.append(None)
        return Slot(len(self.values) - 1)

    def add(self, run: Callable[[], object], *what: Any) -> None:
        """Append an action; two actions are equal if their `what` is."""
        self.actions.append(HostAction(run, what))

    def put_off(self, run: Callable[[], object], *what: Any) -> None:
        """Append an action outside of the step, such as advancing a scheduler, which recording it does not execute."""
        if self._outside is None:
            self._outside = len(self.actions)
        self.add(run, _PUT_OFF, *what)
        self.acts_outside = True

    def catch_up(self) -> None:
        """Execute the actions that were put off, and bring the numbers after them up to date."""
        is_late = False
        for action in list(self.actions):
            is_late = is_late or action.what[0] == _PUT_OFF
            if is_late and action.what[0] in (_PUT_OFF, _NUMBER):
                action.run()
        self.acts_outside = False

    def add_call(self, function: Callable[..., Any], args: Any, kwargs: Any, outputs: Sequence[Slot | None]) -> None:
        """Append a call that stores result tensors in `outputs`; slots and live numbers among its arguments are resolved."""
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
        """Return a number that each run computes from the values at this point."""
        scalar = RuntimeScalar(lambda: compute(self.values), name)
        self.add(scalar.refresh, _NUMBER, *what)
        return scalar

    def expect(self, compute: Callable[[], Any], outcome: Any) -> None:
        """Stop each run at this point unless `compute()` returns `outcome`."""
        self.before_decision()
        self.decides = True

        def run() -> None:
            if compute() != outcome:
                raise PathChangedError

        self.add(run, "decision", outcome)

    def before_decision(self) -> None:
        """End the recording if the outcome of a decision is not known before actions outside of the step."""
        if self.acts_outside:
            problem = "Python branches on a number after a scheduler was advanced"
            self.leave(NotReplayableError(problem, "call scheduler.step() last", is_certain=True))

    def note_write(self, x: torch.Tensor) -> None:
        """Save the elements of a CPU tensor from outside before the first write to it."""
        if id(x) not in self.written:
            self.written[id(x)] = (x, x.detach().clone())

    def run(self, arguments: Sequence[Any]) -> None:
        """Execute the actions of one run. Raises PathChangedError after undoing them.

        If elements on the device are still to be checked, actions outside of the step wait for `finish`.
        """
        self.on_run()
        self.values[: self._arguments] = arguments
        if not (self.decides or self.decides_late):
            for action in self.actions:
                action.run()
            return
        state = torch.default_generator.get_state() if self.draws else None
        self._before = [(x, x.detach().clone()) for x, _ in self.written.values()], state
        try:
            for action in self.actions[: self._outside] if self.decides_late else self.actions:
                action.run()
        except PathChangedError:
            self.undo()
            raise

    def undo(self) -> None:
        """Undo the actions of `run`."""
        restore(*self._before)

    def finish(self) -> None:
        """Execute the actions that waited for checks on the device, after these."""
        if self.decides_late and self._outside is not None:
            for action in self.actions[self._outside :]:
                action.run()

    @property
    def is_waiting(self) -> bool:
        """True if a run would execute actions that are added now only after all work of the device."""
        return self.decides_late and self.acts_outside

    def release(self) -> None:
        """Release the values of a run."""
        self.values[:] = [None] * len(self.values)

    def roll_back(self, random_state: torch.Tensor) -> None:
        """Restore the CPU tensors that the recording wrote to, and the state of the CPU's random numbers if it drew some."""
        restore(self.written.values(), random_state if self.draws else None)

    def decides_otherwise(self, other: HostProgram) -> bool:
        """Return whether another recording is equal up to a number on which Python branched differently."""
        for a, b in zip(self.actions, other.actions, strict=False):
            if not same(a.what, b.what):
                return bool(a.what[0] == b.what[0] == "decision")
        return False

    def same_as(self, other: HostProgram) -> bool:
        """Return whether another recording has equal host actions."""
        return len(self.actions) == len(other.actions) and all(
            same(a.what, b.what) for a, b in zip(self.actions, other.actions, strict=True)
        )


def restore(tensors: Any, random_state: torch.Tensor | None) -> None:
    """Restore the elements of CPU tensors and, unless it is None, the state of the CPU's random numbers."""
    with torch.no_grad():
        for x, before in tensors:
            x.detach().copy_(before)
    if random_state is not None:
        torch.default_generator.set_state(random_state)


def resolved(x: Any, values: list[Any]) -> Any:
    """Return `x` with slots and live numbers replaced by their current values."""
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
    """Return whether recorded actions or results are equal: numbers by value, tensors from outside by storage and offset."""
    if isinstance(a, LiveNumber) or isinstance(b, LiveNumber):
        return type(a) is type(b)
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a is b or (a.device == b.device and a.shape == b.shape and _shares_start(a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, float) and a != a:
        return b != b  # type: ignore[no-any-return]
    return a is b or _equal(a, b)


def _shares_start(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.storage_offset() == b.storage_offset()


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    compare: Any = type(a).__eq__
    return compare is not object.__eq__ and bool(a == b)
