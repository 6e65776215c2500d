"""Calls with which the conformance kit tests an op: sample inputs, calls that must fail, dtypes and the allowed error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal.dtypes import DType
from polyhal.hal.ops.schema import Params, Specs


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs and parameters of one test call: arrays and Python numbers in schema order.

    Floating-point arrays are float64 and are cast to the dtype under test.
    """

    inputs: tuple[Any, ...]
    params: dict[str, Any] = field(default_factory=dict)
    special: bool = False
    """Holds NaN, infinities or boundary values: checked forward only."""
    differentiable: bool = True
    note: str = ""
    """Description of a hard case, such as long rows, ties or special values: native kernels run it alone, too."""


class ErrorSample(NamedTuple):
    """A call that must raise `error` with a message that matches the regular expression `match`."""

    inputs: tuple[Any, ...]
    params: dict[str, Any]
    error: type[Exception]
    match: str


class Tolerance(NamedTuple):
    """Allowed error against the float64 reference, in units in the last place (ULP) of the result dtype."""

    ulp: float = 4.0
    """Bounds the rounding of a fixed number of operations."""
    floor: float = 0.0
    """Units are those at the larger of the result and this magnitude, for ops with cancellation."""
    terms: Callable[[Specs, Params], int] | None = None
    """The number of terms n that each result accumulates. A sum of n terms in precision u is off by at most n u times
    the sum of magnitudes, and by about sqrt(n) u when errors are independent."""
    gradient_terms: Callable[[Specs, Params], int] | None = None
    """As `terms`, of the sums in the gradient, for ops that round coarser than their dtype."""
    rounded: int = 0
    """The number of factors per term that the op computes itself and may round to a 16-bit result's dtype, because
    matrix units take no wider operands: each is off by half a unit."""


Samples = Callable[["np.random.Generator"], Sequence[Sample]]


class OpTests(NamedTuple):
    """The test declarations of an op. The conformance kit derives its cases from them."""

    samples: Samples | None = None
    errors: Sequence[ErrorSample] = ()
    dtypes: tuple[DType, ...] = ()
    """Dtypes of the first floating-point input in which samples run; empty: as the samples give them."""
    tolerance: Tolerance = Tolerance()
    unique: Callable[[tuple[np.ndarray, ...]], tuple[Any, ...]] | None = None
    """Factors of 1, -1 or 0 by which results are multiplied before they are compared: vectors are unique up to their signs."""
