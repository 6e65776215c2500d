"""Calls of ops on NumPy arrays, and their expected results by the float64 reference."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.layout import ScalarSpec, Spec, contiguous
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.samples import Sample
from polyhal.hal.system.reference.tolerances import Bound

if TYPE_CHECKING:
    from polyhal.hal.ops.tensor_like import Array

_NUMBERS = (bool, int, float)


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of an op on NumPy arrays of storage dtypes, Python numbers or None."""

    op: OpDef
    values: tuple[Any, ...]
    params: dict[str, Any]
    """All parameters by name."""
    sample: Sample
    number: int
    """Index of the sample among the op's samples."""
    stand_ins: Mapping[DType, DType] = field(default_factory=dict)
    """Replacement dtypes of the device (see `Device.stand_ins`)."""

    @property
    def elements(self) -> int:
        """Return the number of elements in all arrays."""
        return sum(v.size for v in self.values if isinstance(v, np.ndarray))

    @property
    def computes(self) -> bool:
        """Return whether inputs and outputs are not empty, so that a kernel runs."""
        return bool(self.elements) and any(s.size for s in self.outputs())

    def outputs(self) -> tuple[Spec, ...]:
        """Return the specs inferred by the op's rule."""
        return tuple(contiguous(d, s) for d, s in self._inferred())

    def _inferred(self) -> list[tuple[DType, tuple[int, ...]]]:
        return dispatch.infer(self.op, specs_of(self.values), dict(self.params), self.stand_ins)

    def __str__(self) -> str:
        values = ", ".join(
            f"{as_dtype(v.dtype).name}{list(v.shape)}" if isinstance(v, np.ndarray) else repr(v) for v in self.values
        )
        params = "".join(f", {k}={v!r}" for k, v in self.params.items())
        note = f" ({self.sample.note})" if self.sample.note else ""
        return f"{self.op.name}({values}{params}) [sample {self.number}]{note}"


def is_number(x: Array | float | None) -> bool:
    """Return whether `x` is a Python number, which is passed to an op unchanged; NumPy scalars count as arrays."""
    return type(x) in _NUMBERS


def specs_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the specs for an op's rules: contiguous ones for arrays, scalar ones for numbers, None for absent inputs."""
    return tuple(_spec_of(v) for v in values)


def _spec_of(value: Any) -> Spec | ScalarSpec | None:
    if value is None:
        return None
    if is_number(value):
        return ScalarSpec(dispatch.scalar_dtype(value))
    return contiguous(as_dtype(value.dtype), value.shape)


@dataclass(frozen=True, slots=True)
class ExpectedResults:
    """Expected results of a call: dtypes and shapes by the op's rule, values and bounds by its reference."""

    outputs: tuple[Spec, ...]
    values: tuple[np.ndarray, ...]
    bounds: tuple[Bound, ...]


def expected_results(call: OpCall, *, values: tuple[Any, ...] | None = None) -> ExpectedResults:
    """Evaluate the reference in float64 (exactly on integers) and derive the bounds. `values` replaces the call's values."""
    op = call.op
    values = call.values if values is None else values
    specs, params = specs_of(values), dict(call.params)
    outputs = tuple(contiguous(d, s) for d, s in dispatch.infer(op, specs, params, call.stand_ins))
    # If integers become floats, NumPy would choose the dtype of the computation.
    floating = bool(outputs) and outputs[0].dtype.is_floating_point and op.family in ("elementwise", "reduction")
    wide = tuple(_widened(v, floating) for v in values)
    results = evaluate(op.reference, wide, call.params)
    terms = op.tests.tolerance.terms
    count = terms(specs, params) if terms is not None else 0
    magnitudes = _magnitudes(call, wide, results) if count else [None] * len(results)
    return ExpectedResults(outputs, results, tuple(Bound(op.tests.tolerance, count, m) for m in magnitudes))


def _magnitudes(call: OpCall, wide: tuple[Any, ...], results: tuple[np.ndarray, ...]) -> list[np.ndarray | None]:
    """Return the reference of the inputs' absolute values: the sum of the terms' magnitudes for each result."""
    absolute = tuple(np.abs(v) if isinstance(v, np.ndarray) and v.dtype == np.float64 else v for v in wide)
    sums = evaluate(call.op.reference, absolute, call.params)
    return [s if s.shape == r.shape and s.dtype.kind == "f" else None for s, r in zip(sums, results, strict=True)]


def _widened(value: Array | float, floating: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    kind = as_dtype(value.dtype)
    return value.astype(np.float64) if kind.is_floating_point or (floating and kind.is_integral) else value


def evaluate(reference: Callable[..., Any], values: tuple[Any, ...], params: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """Evaluate a reference; results are arrays, floats of any width in float64."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = reference(*values, **params)
    arrays = [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]
    return tuple(a.astype(np.float64) if as_dtype(a.dtype).is_floating_point else a for a in arrays)
