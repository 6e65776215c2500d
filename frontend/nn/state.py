"""Matching a state dict against what a module or an optimizer expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.errors import PolyhalError, message


class StateDictError(PolyhalError, RuntimeError):
    """A state dict does not fit: keys are missing or unexpected, or shapes differ. The message lists every case."""


class LoadResult(NamedTuple):
    """The keys that did not match; both empty after a strict load."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def compare(name: str, expected: Mapping[str, Any], given: Mapping[str, Any], *, strict: bool) -> LoadResult:
    """Check keys and shapes of `given` against `expected`.

    Shapes must fit in any case; missing and unexpected keys are errors only if `strict`. Raises StateDictError.
    """
    missing = [k for k in expected if k not in given]
    unexpected = [k for k in given if k not in expected]
    problems = []
    if strict and missing:
        problems.append("missing keys: " + ", ".join(missing))
    if strict and unexpected:
        problems.append("unexpected keys: " + ", ".join(unexpected))
    wrong = [
        f"{k} is {shape_of(given[k])}, here {expected[k].shape}"
        for k in expected
        if k in given and shape_of(given[k]) != expected[k].shape
    ]
    if wrong:
        problems.append("shapes differ: " + ", ".join(wrong))
    if problems:
        fix = "" if wrong else "pass strict=False to load what matches"
        raise StateDictError(message("load_state_dict", f"the state does not fit {name}: " + "; ".join(problems), fix=fix))
    return LoadResult(missing, unexpected)


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a tensor, array or number."""
    found = getattr(value, "shape", None)
    return tuple(np.shape(value)) if found is None else tuple(found)
