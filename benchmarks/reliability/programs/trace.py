"""A run of a program in PyTorch with the values around each statement, and the statements that a tensor depends on.

Rules for known differences look at them: the op that made a value, and its operands.
"""

from __future__ import annotations

import functools
import itertools
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reliability.programs.execute import Session, tensors_of
from benchmarks.reliability.programs.libraries import PyTorch
from benchmarks.reliability.programs.program import NAME, Program, Statement

_BACKWARD = re.compile(r"\.backward\(|autograd\.grad\(")
_NO_WRITE = re.compile(r"^del |^with raising|\.backward\(|\.register_hook\(|\.zero_grad\(|\.grad = None")
Place = int | str
"""The address of a tensor's memory; its name if it has no elements."""


class _State(NamedTuple):
    """All tensors between two statements."""

    values: dict[str, np.ndarray]
    places: dict[str, Place]
    strides: dict[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Step:
    """A statement that ran."""

    position: int
    """Its place among the statements of a call."""
    text: str
    """The statement, and the making of the modules and optimizers that it mentions."""
    before: Mapping[str, np.ndarray]
    """The tensors that it mentions, before it."""
    after: Mapping[str, np.ndarray]
    """These tensors and its results, after it."""
    strides: Mapping[str, tuple[int, ...]]
    """The strides of its operands in PyTorch."""
    places: frozenset[Place]
    """The memory of all."""
    behind: frozenset[int]
    """The numbers of the steps that its results depend on, and its own."""

    def calls(self, pattern: str) -> bool:
        """Return whether the text matches a pattern."""
        return bool(re.search(pattern, self.text))

    def is_joined_by_a_copy(self, name: str) -> bool:
        """Return whether PyTorch copies an operand to make one axis of all but its last one."""
        shape, strides = self.before[name].shape[:-1], self.strides[name][:-1]
        axes = [(n, stride) for n, stride in zip(shape, strides, strict=True) if n != 1]
        return any(outer != n * stride for (_, outer), (n, stride) in itertools.pairwise(axes))

    def overlaps(self, name: str) -> bool:
        """Return whether elements of an operand share PyTorch's memory, as in a broadcast and in overlapping windows."""
        reach = 0
        for stride, n in sorted(zip(self.strides[name], self.before[name].shape, strict=True)):
            if n > 1 and stride <= reach:
                return True
            reach += (n - 1) * stride
        return False

    def arrays(self) -> Iterable[np.ndarray]:
        """Yield the values of all tensors, before and after."""
        yield from self.before.values()
        yield from self.after.values()


class Trace:
    """The steps of the calls up to one of them, in PyTorch in the program's dtypes."""

    def __init__(self, program: Program, call: int = 0) -> None:
        library = _Watched()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            session = Session(program, library)
            for number in range(call + 1):
                session.call(number)
        self._body = program.body
        self._setup = {s.text.partition(" = ")[0]: s.text for s in program.setup}
        self._last = library.calls[-1][-1]
        self._behind: dict[Place, frozenset[int]] = {}
        self.steps: list[Step] = []
        for states in library.calls:
            self._first = len(self.steps)
            for position in range(len(states) - 1):
                self.steps.append(self._step(position, *states[position : position + 2]))

    def behind(self, name: str) -> list[Step]:
        """Return the steps that a tensor at the end of the call depends on, and its gradient."""
        return self._numbered(self._behind_places([self._last.places.get(name, name)]))

    def behind_statement(self, position: int) -> list[Step]:
        """Return the steps that a statement depends on, whether PyTorch ran it or not; all for the position -1."""
        if position < 0:
            return self.steps
        if self._first + position < len(self.steps):
            return self._numbered(self.steps[self._first + position].behind)
        return self._numbered(self._behind_statement(self._body[position], self._last))

    def differences_of_nothing(self) -> set[str]:
        """Return the names of results of `diff` along an axis of length 0, and of its arguments."""
        return {
            name
            for step in self.steps
            if step.calls(r"torch\.diff\(")
            for result in step.after.keys() - step.before.keys()
            for argument, x in step.before.items()
            if not x.size and x.shape == step.after[result].shape
            for name in (argument, result)
        }

    def _numbered(self, numbers: frozenset[int]) -> list[Step]:
        return [self.steps[n] for n in sorted(numbers)]

    def _behind_places(self, places: Iterable[Place]) -> frozenset[int]:
        return frozenset[int]().union(*(self._behind.get(p, frozenset()) for p in places))

    def _behind_statement(self, statement: Statement, state: _State) -> frozenset[int]:
        behind = self._behind_places(state.places[n] for n in self._mentioned(statement, state))
        if _BACKWARD.search(statement.text):
            seen = frozenset[Place]().union(*(self.steps[n].places for n in behind))
            behind |= {n for n, s in enumerate(self.steps) if "register_hook" in s.text and s.places & seen}
        return behind

    def _mentioned(self, statement: Statement, state: _State) -> set[str]:
        """Return the names of the tensors that a statement mentions, with the ones of modules and optimizers."""
        found = set()
        for name in statement.names:
            own = NAME.findall(self._setup.get(name, "")) if name[0] == "o" else [name]
            found |= {n for n in state.values if n in own or (n.partition(".")[0] in own and name[0] in "mo")}
            gradients = {f"{n}.grad" for n in found} if name[0] == "o" or ".grad" in statement.text else set()
            found |= gradients & state.values.keys()
        return found

    def _step(self, position: int, before: _State, after: _State) -> Step:
        statement = self._body[position]
        mentioned = self._mentioned(statement, before)
        behind = self._behind_statement(statement, before) | {len(self.steps)}
        writes = not statement.targets and not _NO_WRITE.search(statement.text)
        for name, place in after.places.items():
            if (writes and name in mentioned) or _is_changed(name, before, after):
                # The gradients of several passes may be sums in new memory.
                self._behind[place] = self._behind_places([place, before.places.get(name, name)]) | behind
        seen = {n for n in mentioned | set(statement.targets) if n in after.values}
        return Step(
            position,
            "\n".join([statement.text, *(self._setup[n] for n in sorted(statement.names) if n in self._setup)]),
            {n: before.values[n] for n in mentioned},
            {n: after.values[n] for n in seen},
            {n: before.strides[n] for n in mentioned},
            frozenset([*(before.places[n] for n in mentioned), *(after.places[n] for n in seen)]),
            behind,
        )


@functools.lru_cache(4)
def trace(program: Program, call: int) -> Trace:
    """Return the trace of a call, for all rules."""
    return Trace(program, call)


class _Watched(PyTorch):
    """PyTorch, with the tensors before and after each statement."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[_State]] = []
        self._alive: list[Any] = []
        """All tensors, so that no address is used again."""

    def begin(self, variables: dict[str, Any]) -> None:
        self.calls.append([])
        self._note(variables)

    def after(self, statement: Statement, variables: dict[str, Any]) -> None:
        super().after(statement, variables)
        self._note(variables)

    def _note(self, variables: dict[str, Any]) -> None:
        state = _State({}, {}, {})
        for name, tensor in tensors_of(variables, self):
            self._alive.append(tensor)
            state.values[name] = self.value(tensor).array
            state.strides[name] = tensor.stride()
            state.places[name] = tensor.untyped_storage().data_ptr() or name
        self.calls[-1].append(state)


def _is_changed(name: str, before: _State, after: _State) -> bool:
    """Return whether a statement changed the memory of a tensor, or allocated it. A new view has memory of another tensor."""
    if before.places.get(name) != after.places[name]:
        return after.places[name] not in before.places.values()
    return not _same(before.values[name], after.values[name])


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
