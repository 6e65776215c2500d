"""Branches on values of tensors do not end a graph: PyTorch's compiler traces one branch, and the program checks the guess.

PyTorch's compiler ends a graph at `if tensor:`. Here the condition is computed for the arguments of the call that compiles,
tracing continues in the branch that they take, and the graph returns one number more, which says whether all conditions are
as guessed. The number is read before anything else of the call is visible. After a wrong guess the function runs from its
beginning, compiled without that guess.

A graph that writes to its arguments or communicates with other processes ends at its branches as before, because its work
cannot be repeated. Random numbers can: their generators are set back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import torch

from polyhal.torch.compiler import dynamo
from polyhal.torch.compiler.generator_states import GeneratorStates
from polyhal.torch.device import NAME

_MOST = 64
"""Maximum number of guesses of a graph. A loop whose end depends on values would be traced without end."""


class Unpredictable:
    """Branches that were guessed wrongly, and functions that cannot run again."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int | None], CodeType] = {}
        """Code by its identity and an instruction; None for all branches in the graph of a function."""

    def add(self, code: CodeType, instruction: int | None = None) -> None:
        """Exclude a branch; without an instruction all branches in the graphs that begin with a function."""
        self._found[id(code), instruction] = code

    def holds(self, branch: dynamo.Branch) -> bool:
        """Return whether a branch is excluded."""
        return (id(branch.root), None) in self._found or (id(branch.code), branch.instruction) in self._found


_UNPREDICTABLE = Unpredictable()


def install() -> None:
    """Let PyTorch's compiler guess branches on tensors of the device. A second call is a no-op."""
    dynamo.guess_branches(_choose, CheckedGraph, _UNPREDICTABLE.add)


def _choose(branch: dynamo.Branch) -> bool | None:
    """Return the outcome of a condition in the call that compiles; None to end the graph."""
    fake = branch.fake
    if fake.device.type != NAME or any(type(n) is not int or n != 1 for n in fake.shape):
        return None
    if branch.earlier >= _MOST or _UNPREDICTABLE.holds(branch):
        return None
    generators = GeneratorStates()
    try:
        return bool(branch.computed())
    except Exception:  # the program itself reports the error, in the order of its calls
        return None
    finally:
        generators.restore()


class CheckedGraph:
    """A compiled graph with guesses. A call returns the results, or None if the function has to run again without them."""

    def __init__(self, compiled: Callable[..., Sequence[Any]], guesses: Sequence[dynamo.Guess]) -> None:
        self._compiled = compiled
        self._places = [(guess.code, guess.instruction) for guess in guesses]
        self._is_wrong = False

    def __call__(self, *arguments: Any) -> Sequence[Any] | None:
        if self._is_wrong:
            return None
        generators, is_grad_enabled = GeneratorStates(), torch.is_grad_enabled()
        try:
            *results, difference = self._compiled(*arguments)
            first = int(difference)
        except (
            Exception
        ):  # of an op in a branch that the program may not take: it runs again, and raises its own errors
            wrong = self._places
        else:
            if not first:
                return results
            wrong = self._places[first - 1 : first]
        self._is_wrong = True
        for place in wrong:
            _UNPREDICTABLE.add(*place)
        generators.restore()
        torch.set_grad_enabled(is_grad_enabled)
        return None
