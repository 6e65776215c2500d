"""Differences of a device's run of a program from PyTorch's, as data: rules look at their numbers and errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.reliability.programs.execute import Raised
from benchmarks.reliability.programs.libraries import Value


@dataclass(frozen=True, eq=False)
class Difference:
    """A difference of a tensor, or of the errors of a statement, in a call."""

    call: int
    name: str
    """The tensor. Gradients are NAME.grad. `errors` for errors."""

    @property
    def kind(self) -> str:
        """A word for the kind of difference."""
        raise NotImplementedError

    @property
    def is_gradient(self) -> bool:
        """True if the tensor is a gradient that a backward pass left."""
        return self.name.endswith(".grad")

    def __str__(self) -> str:
        return f"call {self.call}, {self.name}: {self.kind}: {self._text()}"

    def _text(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class WrongValue(Difference):
    """Elements that are farther from PyTorch's in double precision than errors allow."""

    ours: np.ndarray
    """The wrong elements, in a row."""
    theirs: np.ndarray
    """PyTorch's elements there, in double precision."""
    places: np.ndarray
    """Their indices, one row per element."""
    size: int
    """The number of all elements of the tensor."""
    dtype: str
    """The dtype of the tensor in the program."""

    @property
    def kind(self) -> str:
        return "value"

    def _text(self) -> str:
        ours, theirs = (x[0].item() for x in (self.ours, self.theirs))
        return f"{ours} at {self.places[0].tolist()}, expected {theirs}, {len(self.ours)} of {self.size} wrong"


@dataclass(frozen=True, eq=False)
class WrongFact(Difference):
    """Another dtype, shape or `requires_grad`."""

    fact: str
    """`dtype`, `shape` or `requires_grad`."""
    ours: object
    theirs: object

    @property
    def kind(self) -> str:
        return self.fact

    def _text(self) -> str:
        return f"{self.ours}, expected {self.theirs}"


@dataclass(frozen=True, eq=False)
class Missing(Difference):
    """A tensor that only PyTorch has."""

    theirs: Value

    @property
    def kind(self) -> str:
        return "missing"

    def _text(self) -> str:
        return f"expected {_form(self.theirs)}"


@dataclass(frozen=True, eq=False)
class Extra(Difference):
    """A tensor that PyTorch does not have."""

    ours: Value
    in_function: bool
    """The program ran as one function."""

    @property
    def kind(self) -> str:
        return "extra"

    def _text(self) -> str:
        return _form(self.ours)


@dataclass(frozen=True, eq=False)
class OneError(Difference):
    """An error that only one library raised at a statement."""

    position: int
    """The place of the statement among the statements of a call; -1 for a function."""
    error: Raised
    is_ours: bool

    @property
    def kind(self) -> str:
        return "raises" if self.is_ours else "does not raise"

    def _text(self) -> str:
        return f"statement {self.position}: {'' if self.is_ours else 'expected '}{self.error}"


def _form(value: Value) -> str:
    return f"{value.dtype}{list(value.array.shape)}"
