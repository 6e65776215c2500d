"""Samples of an op made concrete: arrays of the dtype under test, and what the reference makes of them in float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhal.hal import dispatch, dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.samples import Sample
from polyhal.hal.ops.traits import Trait
from polyhal.hal.testing.kit.scope import Scope
from polyhal.hal.testing.kit.tolerances import Bound

SEED = 20240229
_NUMBERS = (bool, int, float)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an op: NumPy arrays of storage dtypes, Python numbers or None, and all parameters by name."""

    op: OpDef
    values: tuple[Any, ...]
    params: dict[str, Any]
    sample: Sample
    number: int
    """The position of the sample among those of its op."""

    @property
    def elements(self) -> int:
        """Elements in all arrays."""
        return sum(v.size for v in self.values if isinstance(v, np.ndarray))

    @property
    def computes(self) -> bool:
        """Whether there are elements on both sides, so that something runs."""
        return bool(self.elements) and any(s.size for s in self.outputs())

    def outputs(self) -> tuple[Spec, ...]:
        """What the op's rule infers."""
        return tuple(contiguous(d, s) for d, s in dispatch.infer(self.op, specs_of(self.values), dict(self.params)))

    def __str__(self) -> str:
        shown = ", ".join(
            f"{as_dtype(v.dtype).name}{list(v.shape)}" if isinstance(v, np.ndarray) else repr(v) for v in self.values
        )
        named = "".join(f", {k}={v!r}" for k, v in self.params.items())
        note = f" ({self.sample.note})" if self.sample.note else ""
        return f"{self.op.name}({shown}{named}) [sample {self.number}]{note}"


def is_number(x: Any) -> bool:
    """True for Python numbers, which reach an op as such; NumPy scalars are arrays here."""
    return type(x) in _NUMBERS


def cast(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Sample values in `dtype`: bool by sign, integers by truncation, unsigned ones by magnitude."""
    if array.dtype == dtype.numpy:
        return array
    with np.errstate(all="ignore"):
        if dtype.kind == "bool":
            return np.asarray(array > 0)
        if dtype.kind == "float":
            return array.astype(dtype.numpy)
        whole = np.nan_to_num(np.trunc(array), nan=0.0, posinf=100.0, neginf=-100.0)
        return np.asarray((np.abs(whole) if dtype.kind == "uint" else whole).astype(dtype.numpy))


def calls(op: OpDef, dtype: DType | None) -> list[Call]:
    """Every sample of `op` in `dtype` (None: as the sample gives it).

    Arrays of float64 are cast to `dtype`, arrays of float32, which are statistics, to the dtype that `dtype`
    accumulates in. So are integer arrays of elementwise ops, which are operands; elsewhere they are indices and
    alternate between int64 and int32. Arrays of other dtypes stay what they are.
    """
    if op.tests.samples is None:
        return []
    made = []
    for number, sample in enumerate(op.tests.samples(np.random.default_rng(SEED))):
        values: list[Any] = []
        for x in sample.inputs:
            if x is None or is_number(x):
                values.append(x)
                continue
            array = np.asarray(x)
            if dtype is not None and (
                array.dtype == np.float64 or (Trait.POINTWISE in op.traits and array.dtype.kind in "iu")
            ):
                array = cast(array, dtype)
            elif dtype is not None and array.dtype == np.float32 and dtype.is_floating_point:
                array = cast(array, dtypes.accumulator(dtype))
            elif array.dtype == np.int64 and number % 2:
                array = array.astype(np.int32)
            values.append(array)
        bound = {**op.schema.params, **sample.params}
        made.append(Call(op, tuple(values), bound, sample, number))
    return made


def specs_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """Contiguous specs of arrays, scalar specs of numbers, None for absent inputs: what an op's rules take."""
    from polyhal.hal.layout import ScalarSpec

    return tuple(
        None
        if v is None
        else ScalarSpec(dispatch.scalar_dtype(v))
        if is_number(v)
        else contiguous(as_dtype(v.dtype), v.shape)
        for v in values
    )


def runnable(device: Device, op: OpDef, dtype: DType | None, scope: Scope) -> list[Call]:
    """The calls of `op` in `dtype` that are in scope and whose inputs and outputs the device can store."""
    storage, found = device.capabilities.storage, []
    made = calls(op, dtype)
    # Calls that compute nothing build no kernels; those on special values are what half precision gets wrong first.
    plain = frozenset(c.number for c in made if not c.sample.special and c.computes)
    chosen = scope.share(op, dtype, sorted(plain))
    for call in made:
        if call.number in plain - chosen:
            continue
        kept = [as_dtype(v.dtype) for v in call.values if isinstance(v, np.ndarray)]
        if (
            scope.accepts(call.elements)
            and storage.issuperset(kept)
            and storage.issuperset(s.dtype for s in call.outputs())
        ):
            found.append(call)
    return found


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a call must give: dtypes and shapes by the op's own rule, values and bounds by its reference."""

    outputs: tuple[Spec, ...]
    values: tuple[np.ndarray, ...]
    bounds: tuple[Bound, ...]


def expect(call: Call, *, values: tuple[Any, ...] | None = None) -> Expectation:
    """Evaluate the reference in float64 (exactly on integers) and derive the bounds."""
    op = call.op
    given = call.values if values is None else values
    specs, bound = specs_of(given), dict(call.params)
    inferred = dispatch.infer(op, specs, bound)
    outputs = tuple(contiguous(d, s) for d, s in inferred)
    # Where integers become floats, NumPy would compute in a dtype of its own choice.
    floating = bool(outputs) and outputs[0].dtype.is_floating_point and op.family in ("elementwise", "reduction")
    wide = tuple(_wide(v, floating) for v in given)
    results = evaluate(op.reference, wide, call.params)
    count = op.tests.tolerance.terms(specs, bound) if op.tests.tolerance.terms is not None else 0
    sums: list[np.ndarray | None] = [None] * len(results)
    if count:
        found = evaluate(
            op.reference,
            tuple(np.abs(v) if isinstance(v, np.ndarray) and v.dtype == np.float64 else v for v in wide),
            call.params,
        )
        sums = [s if s.shape == r.shape and s.dtype.kind == "f" else None for s, r in zip(found, results, strict=True)]
    return Expectation(outputs, results, tuple(Bound(op.tests.tolerance, count, s) for s in sums))


def _wide(value: Any, floating: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    kind = as_dtype(value.dtype)
    return value.astype(np.float64) if kind.is_floating_point or (floating and kind.is_integral) else value


def evaluate(reference: Callable[..., Any], values: tuple[Any, ...], params: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The reference's results as arrays; float results of any width in float64."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = reference(*values, **params)
    arrays = [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]
    return tuple(a.astype(np.float64) if as_dtype(a.dtype).is_floating_point else a for a in arrays)
