"""A random program as data: its leaves, and statements that are lines of Python over named variables.

One text runs with every library: in it `torch`, `F`, `nn` and `optim` are PyTorch's modules, or Polyhal's in its spelling.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

NAME = re.compile(r"\b[a-z]\d+\b")
"""Variables: x for leaves, p for parameters, v for results, m for modules, o for optimizers."""
_TARGETS = re.compile(r"^ *([a-z]\d+(?:, [a-z]\d+)*) = ", re.MULTILINE)

DOUBLES = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "float64": "float64"}
"""The dtype of each floating-point one in the run in double precision."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A tensor that a program begins with."""

    name: str
    dtype: str
    values: np.ndarray
    """Floating-point values are float64 here, rounded to `dtype` when a run begins."""
    requires_grad: bool = False

    @property
    def is_parameter(self) -> bool:
        """True if the leaf is made once, before the first call, and keeps its gradient from call to call."""
        return self.name.startswith("p")


@dataclass(frozen=True)
class Statement:
    """One statement, of one or more lines."""

    text: str
    op: str
    """The op or the kind of statement, to count the parts of programs."""
    at_setup: bool = False
    """It runs once, before the first call: modules and optimizers are made there."""

    @functools.cached_property
    def targets(self) -> tuple[str, ...]:
        """The variables that it sets."""
        return tuple(dict.fromkeys(n for names in _TARGETS.findall(self.text) for n in names.split(", ")))

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """All variables that it mentions."""
        return frozenset(NAME.findall(self.text))

    @property
    def is_mistake(self) -> bool:
        """True if an error of the statement does not end the program."""
        return self.text.startswith("with raising(")

    @property
    def operands(self) -> frozenset[str]:
        """The variables that it reads or writes to, without new ones."""
        return self.names - set(self.targets) if self.targets else self.names


@dataclass(frozen=True)
class Program:
    """A program. Its statements are run in order, once per call."""

    seed: int
    leaves: tuple[Leaf, ...]
    statements: tuple[Statement, ...]

    @property
    def setup(self) -> tuple[Statement, ...]:
        """The statements that run once."""
        return tuple(s for s in self.statements if s.at_setup)

    @property
    def body(self) -> tuple[Statement, ...]:
        """The statements of each call."""
        return tuple(s for s in self.statements if not s.at_setup)

    def text(self) -> str:
        """Return the statements of each call, as Python."""
        return "\n".join(s.text for s in self.body)

    def without_unused_leaves(self) -> Program:
        """Drop leaves that no statement mentions."""
        used = frozenset[str]().union(*(s.names for s in self.statements))
        return Program(self.seed, tuple(leaf for leaf in self.leaves if leaf.name in used), self.statements)


def closed(statements: Iterable[Statement], leaves: Iterable[Leaf]) -> tuple[Statement, ...]:
    """Return the statements whose variables exist when it is their turn."""
    known = {leaf.name for leaf in leaves}
    kept = []
    for s in sorted(statements, key=lambda s: not s.at_setup):
        if s.operands <= known:
            known |= set(s.targets)
            if s.text.startswith("del "):
                known -= s.names
            kept.append(s)
    return tuple(kept)
