"""The tensor of a difference in another run of its program, by a library that computes otherwise."""

from __future__ import annotations

import warnings

import numpy as np

from benchmarks.reliability.programs.difference import Difference, WrongValue
from benchmarks.reliability.programs.execute import run
from benchmarks.reliability.programs.libraries import Library, Value
from benchmarks.reliability.programs.program import Program


def value(program: Program, library: Library, difference: Difference) -> Value | None:
    """Run a program up to the call of a difference, and return its tensor; None if the run does not have it."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return run(program, library, difference.call + 1)[difference.call].values.get(difference.name)


def elements(program: Program, library: Library, difference: WrongValue) -> np.ndarray | None:
    """Return the elements of that tensor at the places of the difference; None if the run has no tensor of its shape."""
    seen = value(program, library, difference)
    if seen is None or seen.array.size != difference.size or seen.array.ndim != difference.places.shape[1]:
        return None
    found: np.ndarray = seen.array[tuple(difference.places.T)]
    return found
