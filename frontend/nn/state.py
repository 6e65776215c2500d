"""State dicts checked against what a module or an optimizer expects."""

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


def compare(name: str, expected: Mapping[str, Any], actual: Mapping[str, Any], *, strict: bool) -> LoadResult:
    """Check keys and shapes of `actual` against `expected`.

    Missing and unexpected keys are errors only if `strict`, other shapes always. Raises StateDictError.
    """
    missing = [k for k in expected if k not in actual]
    unexpected = [k for k in actual if k not in expected]
    problems = []
    if strict and missing:
        problems.append("missing keys: " + ", ".join(missing))
    if strict and unexpected:
        problems.append("unexpected keys: " + ", ".join(unexpected))
    shapes = {k: _shape_at(actual, k) for k in expected if k in actual}
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
    shape = getattr(value, "shape", None)
    return tuple(np.shape(value)) if shape is None else tuple(shape)


def adopt(value: Any, dtype: DType, device: Device) -> Tensor:
    """Convert a saved tensor or array to the dtype and device of its target.

    It is cast before it is moved, because the device may not store its own dtype.
    """
    if isinstance(value, Tensor):
        return value.detach().to(dtype).to(device)
    return Tensor(value, dtype=dtype, device=device)


def _shape_at(state: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """The shape of an entry; the value is not read from a file for that."""
    lazy = getattr(state, "shape_of", None)
    shape = lazy(key) if lazy is not None else None
    return shape_of(state[key]) if shape is None else tuple(shape)
