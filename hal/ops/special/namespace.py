"""The ops that formulas of special functions use, under NumPy's names: one formula serves reference and decomposition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from polyhal.hal.ops.pointwise.arithmetic import abs_
from polyhal.hal.ops.pointwise.exponential import exp, log, log1p, sqrt
from polyhal.hal.ops.pointwise.logic import equal, less, logical_and, logical_or
from polyhal.hal.ops.pointwise.rounding import floor
from polyhal.hal.ops.pointwise.selection import maximum, minimum, where
from polyhal.hal.ops.pointwise.trigonometry import cos, sin
from polyhal.hal.ops.tensor_like import Array, TensorLike

TENSORS: Any = SimpleNamespace(
    abs=abs_,
    cos=cos,
    equal=equal,
    exp=exp,
    floor=floor,
    less=less,
    log=log,
    log1p=log1p,
    logical_and=logical_and,
    logical_or=logical_or,
    maximum=maximum,
    minimum=minimum,
    sin=sin,
    sqrt=sqrt,
    where=where,
)


def reference_of(formula: Any) -> Any:
    """The formula over NumPy arrays, in float64."""

    def reference(x: Array) -> Any:
        with np.errstate(all="ignore"):
            return formula(np, np.asarray(x, np.float64))

    return reference


def horner(z: TensorLike | Array, coefficients: tuple[float, ...]) -> Any:
    """A polynomial in `z`, highest coefficient first."""
    value = z * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        value = value * z + c
    return value
