"""Ops that rules need and users do not: exact pieces of the contract without a NumPy counterpart."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.ops.elementwise import CORE_NAMES, elementwise
from polyhal.hal.ops.opdef import Sample


def _truncating_divide(x: Any, y: Any) -> Any:
    x, y = np.asarray(x), np.asarray(y)
    wide = np.result_type(x, y)
    quotient = np.floor_divide(np.abs(x.astype(wide)), np.abs(y.astype(wide)))
    return np.where((x < 0) != (y < 0), -quotient, quotient) if wide.kind == "i" else quotient


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((rng.integers(0, 100, (33,)), rng.integers(1, 9, (33,))))]


CORE_NAMES["truncating_divide"] = "div"
truncating_divide = elementwise(
    "truncating_divide", _truncating_divide, "Integer quotient rounded towards zero, as in C.", operand="integral", samples=_samples,
    dtypes_=dtypes.INTEGERS,
)  # fmt: skip
