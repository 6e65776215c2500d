"""Makes random programs from seeds. Each statement is tried in PyTorch as it is added: shapes, dtypes and errors are known."""

from __future__ import annotations

import contextlib
import random
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.reliability.programs import parts, structure
from benchmarks.reliability.programs.draw import Draw, UnfitError, Var, style
from benchmarks.reliability.programs.execute import Session, code
from benchmarks.reliability.programs.libraries import PyTorch
from benchmarks.reliability.programs.mistakes import mistake
from benchmarks.reliability.programs.ops import NOT_OF_SPECIAL, WEIGHTS, families
from benchmarks.reliability.programs.program import Leaf, Program, Statement

_TRIES = 6
"""Draws per statement of the wanted length before the program is taken as it is."""
_ELEMENTS = 300
_LARGEST = {torch.float16: 500.0, torch.bfloat16: 500.0}
"""Magnitudes that ordinary programs stay below; 5,000 in other dtypes. Beyond, errors hide one another."""
_REFUSALS = ("modified by an inplace operation", "backward through the graph a second time")
"""Errors of backward passes that a program may end with."""
_VIEW_OR_COPY = ("reshape", "flatten", "contiguous")
_TARGET = re.compile(r"^ *([a-z]\d+)", re.MULTILINE)
_PASSES = ("backward", "grad")


def generate(seed: int, device: str = "numpy") -> Program:
    """Make the program of a seed for a device, without float64 for wgpu."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Generator(seed, doubles=not device.startswith("wgpu")).program()


class _Generator:
    def __init__(self, seed: int, doubles: bool) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.style = style(self.rng, doubles)
        self.statements: list[Statement] = []
        self.count = 0
        self.library = PyTorch()
        self.draw = Draw(self.rng, self.style, {})
        self.draw.on_leaf = lambda leaf: self.library.tensor(leaf, leaf.values)
        self.replay()

    def program(self) -> Program:
        """Add statements until the program is long enough."""
        wanted = self.rng.choice((5, 8, 12, 16, 20, 25, 30, 40, 60))
        for _ in range(self.rng.randint(1, 3)):
            self.draw.leaf(
                self.draw.shape(), self.rng.choice((*self.style.dtypes, *self.style.dtypes, "int64", "int32", "bool"))
            )
        for _ in range(_TRIES * wanted):
            if len(self.statements) >= wanted or self.attempt() == "end":
                break
        if self.rng.random() < 0.7 and self.style.gradients and not self.ended:
            with contextlib.suppress(UnfitError):
                self.add(Statement(self._text(structure.backward), "backward"))
        return Program(self.seed, tuple(self.draw.leaves), tuple(self.statements)).without_unused_leaves()

    ended = False

    def attempt(self) -> str:
        """Try one statement more."""
        leaves = len(self.draw.leaves)
        try:
            statement = self.drawn()
        except UnfitError:
            self.forget(leaves)
            return ""
        if statement is not None and not self.add(statement):
            self.forget(leaves)
        return "end" if self.ended else ""

    def forget(self, leaves: int) -> None:
        """Drop the leaves that only a rejected statement has."""
        for leaf in self.draw.leaves[leaves:]:
            self.draw.variables.pop(leaf.name, None)
        del self.draw.leaves[leaves:]

    def drawn(self) -> Statement | None:
        """Draw a statement. Returns None if it was added already."""
        kind = self.rng.random()
        if kind < 0.05:
            return self.part()
        if kind < 0.07:
            return self.wrong()
        if kind < 0.15 and any(n[0] == "o" and n[1:].isdigit() for n in self.draw.variables):
            return self.part(5)
        weights = [k.weight * (self.style.writes if k.op.startswith("write") else 1) for k in structure.KINDS]
        total = sum(weights)
        if self.rng.random() < total / (total + 60):
            chosen = self.rng.choices(structure.KINDS, weights)[0]
            return Statement(self._text(chosen.draw), chosen.op)
        return self.call()

    def call(self) -> Statement | None:
        """Draw a call of an op, sometimes without gradients or in a checkpoint."""
        modules = any(n[0] == "m" and n[1:].isdigit() for n in self.draw.variables)
        if modules and not self.style.special and self.rng.random() < 0.12:
            op, expression = "module", parts.call(self.draw)
        else:
            family = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            chosen = self.rng.choice(families()[family])
            if self.style.special and any(part in chosen.op for part in NOT_OF_SPECIAL):
                raise UnfitError
            op, expression = chosen.op, chosen.draw(self.draw)
        how = self.rng.random()
        if how < 0.04:
            op, expression = "checkpoint", structure.in_checkpoint(expression)
        result = self.tried(expression)
        if not result:
            return None
        names = ", ".join(self.new() for _ in result)
        if isinstance(result, list):
            expression = f"({expression})[0]"
        if (
            op in _VIEW_OR_COPY and not result[0]._is_view()
        ):  # results of PyTorch's ops have other strides, so it copies
            expression += ".clone()"
        if 0.04 <= how < 0.07 and len(result) == 1:
            # In PyTorch views made under no_grad need gradients, and some functions return their argument.
            if result[0]._is_view() or any(result[0] is t for t in self.draw.variables.values()):
                expression = f"({expression}).clone()"
            return Statement(f"with torch.no_grad():\n    {names} = {expression}", op)
        for name, tensor in zip(names.split(", "), result, strict=True):
            self.draw.variables[name] = tensor
        self.statements.append(Statement(f"{names} = {expression}", op))
        return None

    def tried(self, expression: str) -> Sequence[torch.Tensor]:
        """Evaluate an expression. Returns its results, none if they are wild; a list for a tuple of one."""
        try:
            result = eval(expression, self.draw.variables)
        except Exception:
            return ()
        results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(results) > 3 or not all(isinstance(r, torch.Tensor) and self.is_tame(r) for r in results):
            return ()
        return list(results) if len(results) == 1 and results[0] is not result else results

    def is_tame(self, t: torch.Tensor) -> bool:
        """Return whether a tensor is small enough, in elements and in magnitude."""
        if t.numel() > _ELEMENTS or t.ndim > 5 or t.is_complex():
            return False
        if self.style.special or not t.is_floating_point() or not t.numel():
            return True
        return bool(t.detach().abs().max() <= _LARGEST.get(t.dtype, 5e3))  # false for NaN

    def part(self, kind: int | None = None) -> Statement | None:
        """Draw a module or an optimizer, or a step of one."""
        kind = self.rng.randrange(6) if kind is None else kind
        setup: dict[int, Callable[[Draw], str]] = {
            0: lambda d: parts.module(d, self.number()),
            1: lambda d: parts.module(d, self.number()),
            2: lambda d: parts.optimizer(d, self.number()),
            3: parts.shared,
        }
        if kind in setup:
            return Statement(setup[kind](self.draw), "setup", at_setup=True)
        step = parts.use_optimizer(self.draw)
        if step.endswith("step()"):
            self.add(Statement(self._text(structure.backward), "backward"))
            if self.ended:
                return None
        return Statement(step, "optimizer")

    def wrong(self) -> Statement | None:
        """Draw a statement that fails here, and must fail everywhere."""
        text = mistake(self.draw)
        before = len(self.statements)
        try:
            exec(text, dict(self.draw.variables))
        except (RuntimeError, IndexError, ValueError, TypeError):
            return Statement(f"with raising({1000 + before}):\n    {text}", "mistake")
        raise UnfitError

    def add(self, statement: Statement) -> bool:
        """Run a statement and keep it, unless it fails or gives wild values. Returns whether it was kept."""
        if statement.op.startswith("write") and self.overlaps(statement):
            return False
        try:
            self.execute(statement)
        except Exception as error:
            stale = "view was created in no_grad mode" in str(error) or "is a view" in str(error)
            expected = any(text in str(error) for text in _REFUSALS)
            if expected and statement.op in _PASSES and self.rng.random() < 0.25:
                self.ended = True
                self.statements.append(statement)
                return True
            if stale or statement.op in (*_PASSES, "checkpoint", "optimizer"):
                self.replay()
            return False
        written = [self.draw.variables.get(n) for n in (statement.names if not statement.at_setup else ())]
        if not all(self.is_tame(t) for t in written if isinstance(t, torch.Tensor)):
            self.replay()
            return False
        self.statements.append(statement)
        return True

    def replay(self) -> None:
        """Make all variables again from the statements. The program ends before a statement that fails now.

        It relied on a change by a rejected statement of several lines, which failed after the first one.
        """
        leaves = tuple(self.draw.leaves)
        session = Session(Program(self.seed, leaves, tuple(self.statements)), self.library)
        variables = session.variables | {leaf.name: self._leaf(leaf, session) for leaf in leaves}
        variables["raising"] = _Ignored
        self.draw.variables = variables
        for position, s in enumerate(self.statements):
            try:
                if not s.at_setup:
                    self.execute(s)
            except Exception:
                del self.statements[position:]
                self.ended = True
                return

    def overlaps(self, statement: Statement) -> bool:
        """Return whether a write reads a part of the memory that it writes to: PyTorch leaves the result open."""
        target = _TARGET.search(statement.text)
        x = self.draw.variables.get(target[1]) if target else None
        if not isinstance(x, torch.Tensor):
            return False
        others = [self.draw.variables.get(n) for n in statement.names if n != target[1]] if target else []
        memory = x.untyped_storage().data_ptr()
        parts = "[" in statement.text.partition("=")[0]
        return any(
            isinstance(y, torch.Tensor)
            and y.untyped_storage().data_ptr() == memory
            and (parts or _layout(y) != _layout(x))
            for y in others
        ) or (parts and statement.text.count(target[1]) > 1 if target else False)

    def execute(self, statement: Statement) -> None:
        """Run a statement."""
        exec(code(statement.text), self.draw.variables)
        self.library.refresh(self.draw.variables)

    def _leaf(self, leaf: Leaf, session: Session) -> Any:
        return session.variables[leaf.name] if leaf.is_parameter else self.library.tensor(leaf, leaf.values)

    def _text(self, draw: Callable[[Draw], str]) -> str:
        text = draw(self.draw)
        return text.replace("{v}", self.new()).replace("{w}", self.new())

    def new(self) -> str:
        """Return the name of a new variable."""
        return f"v{self.number()}"

    def number(self) -> int:
        """Return a number that no variable has."""
        self.count += 1
        return self.count


def _layout(t: torch.Tensor) -> tuple[Any, ...]:
    return (t.storage_offset(), t.shape, t.stride())


class _Ignored:
    """Stands for `raising` while a program is made."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> bool:
        return True


__all__ = ["Var", "generate"]
