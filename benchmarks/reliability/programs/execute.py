"""Running a program with a library, eagerly or as one function, and the observations at the end of each call."""

from __future__ import annotations

import contextlib
import functools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reliability.programs.libraries import Library, Value
from benchmarks.reliability.programs.program import Program, Statement

AFTERWARDS = "afterwards"
"""The op of statements at the end of a program that run outside of its function."""
Data = dict[str, np.ndarray]
"""The values of leaves by name."""


class Raised(NamedTuple):
    """An error of a statement."""

    type: str
    """The name of its class."""
    message: str

    def __str__(self) -> str:
        return f"{self.type} ({self.message[:240]})"


@dataclass
class Observation:
    """Tensors and errors after one call of a program."""

    values: dict[str, Value] = field(default_factory=dict)
    """Tensors by their names, gradients of leaves and parameters by NAME.grad."""
    raised: dict[int, Raised] = field(default_factory=dict)
    """Errors by the positions of the statements that raised them, in the order of the program; -1 in a function."""
    end: int | None = None
    """The position of the error that ended the call. None if the only errors are mistakes, after which the program goes on."""


@functools.lru_cache(65536)
def code(text: str) -> CodeType:
    """Compile the text of a statement once."""
    return compile(text, "<program>", "exec")


def data_of(program: Program, call: int = 0) -> Data:
    """Return the values of the leaves in a call: the program's own in the first one, permutations of them later."""
    if not call:
        return {leaf.name: leaf.values for leaf in program.leaves}
    rng = np.random.default_rng([program.seed, call])
    return {leaf.name: rng.permutation(leaf.values.reshape(-1)).reshape(leaf.values.shape) for leaf in program.leaves}


class Session:
    """A program and a library: parameters, modules and optimizers live from call to call."""

    def __init__(self, program: Program, library: Library) -> None:
        self.program = program
        self.library = library
        self.variables: dict[str, Any] = library.names | {"made": self._made}
        with library.running():
            first = data_of(program)
            for leaf in program.leaves:
                if leaf.is_parameter:
                    self.variables[leaf.name] = library.tensor(leaf, first[leaf.name])
            for s in program.setup:
                exec(code(s.text), self.variables)

    def call(self, number: int = 0) -> Observation:
        """Run the statements of a call one by one. A statement that fails ends it, unless it is guarded."""
        seen = Observation()
        variables = dict(self.variables)
        with self.library.running():
            variables |= self._arguments(number)
            self.library.begin(variables)
            for position, statement in enumerate(self.program.body):
                variables["raising"] = functools.partial(_raising, seen, self.library, position)
                try:
                    exec(code(statement.text), variables)
                except Exception as error:
                    seen.end, seen.raised[position] = position, _described(error)
                    break
                self.library.after(statement, variables)
            self._observe(variables, seen)
        return seen

    def function(self, *, detached: bool = False) -> Callable[..., dict[str, Any]]:
        """Make the statements of a call a function of the leaves that are not parameters.

        `detached` takes results off the tape, except those that statements after the function use.
        """
        names = [leaf.name for leaf in self.program.leaves if not leaf.is_parameter]
        inside = [s for s in self.program.body if s.op != AFTERWARDS]
        body = textwrap.indent("\n".join(map(_text, inside)) or "pass", "    ")
        made_there = dict.fromkeys(t for s in inside for t in s.targets)
        deleted = {n for s in inside if s.text.startswith("del ") for n in s.names}
        results = "".join(f"{n!r}: {n}, " for n in made_there if n not in deleted)
        text = f"def call({', '.join(names)}):\n{body}\n    return taken({{{results}}})\n"
        kept = frozenset(n for s in self.program.body if s.op == AFTERWARDS for n in s.names)
        self.variables["taken"] = functools.partial(_off_tape, self.library.is_tensor, kept) if detached else dict
        exec(code(text), self.variables)
        made: Callable[..., dict[str, Any]] = self.variables.pop("call")
        return made

    def call_function(self, function: Callable[..., dict[str, Any]], number: int) -> Observation:
        """Run a call by a function that `function` made, captured or not. An error has position -1."""
        seen = Observation()
        with self.library.running():
            arguments = self._arguments(number)
            try:
                results = function(*arguments.values())
                for s in self.program.body:
                    if s.op == AFTERWARDS:
                        exec(code(s.text), variables := self.variables | arguments | results)
                        results |= {t: variables[t] for t in s.targets}
            except Exception as error:
                seen.end, seen.raised[-1] = -1, _described(error)
                return seen
            self._observe(self.variables | arguments | results, seen)
        return seen

    def _arguments(self, number: int) -> dict[str, Any]:
        data = data_of(self.program, number)
        return {
            leaf.name: self.library.tensor(leaf, data[leaf.name])
            for leaf in self.program.leaves
            if not leaf.is_parameter
        }

    def _observe(self, variables: dict[str, Any], seen: Observation) -> None:
        value = self.library.value
        for name, tensor in tensors_of(variables, self.library):
            seen.values[name] = value(tensor)

    def _made(self, module: Any, seed: int) -> Any:
        """Return a module whose parameters have values that depend only on the seed, in each library."""
        rng = np.random.default_rng(seed)
        state = {n: rng.uniform(-1, 1, tuple(t.shape)).astype(np.float32) for n, t in sorted(module.named_parameters())}
        ready = self.library.module(module)
        for name, parameter in ready.named_parameters():
            self.library.fill(parameter, state[name])
        return ready


def _text(statement: Statement) -> str:
    """Return the text of a statement within a function. PyTorch registers a hook on a view safely only if its node is known:
    after a write to its base the process ends with a segmentation fault, also on the CPU."""
    tensor, is_hook, _ = statement.text.partition(".register_hook(")
    return f"getattr({tensor}, 'grad_fn', None)\n{statement.text}" if is_hook else statement.text


def _off_tape(is_tensor: Callable[[Any], bool], kept: frozenset[str], results: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors among the results of a function, all but the kept ones without their history."""
    return {n: x if n in kept else x.detach() for n, x in results.items() if is_tensor(x)}


def tensors_of(variables: dict[str, Any], library: Library) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a program by their names, those of modules by MODULE.NAME, and their gradients by NAME.grad."""
    for name, tensor in _named_tensors(variables, library):
        yield name, tensor
        if tensor.is_leaf and tensor.grad is not None:
            yield f"{name}.grad", tensor.grad


def _named_tensors(variables: dict[str, Any], library: Library) -> Iterator[tuple[str, Any]]:
    for name, value in variables.items():
        if not name[-1].isdigit():
            continue
        if name[0] == "m":
            yield from ((f"{name}.{n}", p) for n, p in value.named_parameters())
            yield from ((f"{name}.{n}", b) for n, b in value.named_buffers())
        elif library.is_tensor(value):
            yield name, value


@contextlib.contextmanager
def _raising(seen: Observation, library: Library, position: int, number: int) -> Iterator[None]:
    """Note the error of a mistake, a statement that may fail, and go on. `number` is only part of the statement's text."""
    try:
        with library.mistaken():
            yield
    except Exception as error:
        seen.raised[position] = _described(error)


def _described(error: Exception) -> Raised:
    return Raised(type(error).__name__, str(error))


def run(program: Program, library: Library, calls: int = 1) -> Sequence[Observation]:
    """Run a program so many times, with other data each time."""
    session = Session(program, library)
    return [session.call(number) for number in range(calls)]
