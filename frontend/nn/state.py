"""Matching a state dict against what a module or an optimizer expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import PolyhalError, message
from polyhal.tensor import Tensor


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
    shapes = {k: _shape_under(given, k) for k in expected if k in given}
    wrong = [f"{k} is {shape}, here {expected[k].shape}" for k, shape in shapes.items() if shape != expected[k].shape]
    if wrong:
        problems.append("shapes differ: " + ", ".join(wrong))
    if problems:
        fix = "" if wrong else "pass strict=False to load what matches"
        raise StateDictError(
            message("load_state_dict", f"the state does not fit {name}: " + "; ".join(problems), fix=fix)
        )
    return LoadResult(missing, unexpected)


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a tensor, array or number."""
    found = getattr(value, "shape", None)
    return tuple(np.shape(value)) if found is None else tuple(found)


def adopt(value: Any, dtype: DType, device: Device) -> Tensor:
    """A saved tensor or array in the dtype and on the device of what it is for.

    Cast where it is now: its own dtype may not exist on the device it goes to.
    """
    if isinstance(value, Tensor):
        return value.detach().to(dtype).to(device)
    return Tensor(value, dtype=dtype, device=device)


def _shape_under(given: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """The shape under a key, without reading the value of a mapping that is still in a file."""
    lazily = getattr(given, "shape_of", None)
    found = lazily(key) if lazily is not None else None
    return shape_of(given[key]) if found is None else tuple(found)
