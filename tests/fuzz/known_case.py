"""A program with a known difference from PyTorch."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.reliability.programs.agree import leaf, program_of
from benchmarks.reliability.programs.program import Leaf, Program


class Case(NamedTuple):
    """The name of the difference, and the program."""

    name: str
    text: str
    leaves: dict[str, Leaf]
    mode: str = "eager"

    def program(self) -> Program:
        """Return the program."""
        return program_of(self.text, **self.leaves)


X = leaf([[0.5, -1.0], [2.0, 0.25]], "float32", requires_grad=True)
ROWS = leaf([[[0.5, -1.0], [2.0, 0.25]]], "float32", requires_grad=True)
