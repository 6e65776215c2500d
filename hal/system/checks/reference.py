"""Check `reference`: every result is compared with the op's NumPy reference in float64.

The bound is the conformance kit's, derived per op (see `hal/system/reference/tolerances.py`) for inputs like the op's
samples. Other inputs may make the op ill-conditioned, so a result outside the bound is also compared with NumPy's
result in the device's precision. The device is at fault if its error exceeds NumPy's by a factor that allows for a
different order of operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyhal.hal.core.dispatch.observer import ObservedCall
from polyhal.hal.core.settings.state import settings
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.errors import WrongResultError, message
from polyhal.hal.ops.samples import Sample
from polyhal.hal.ops.traits import Trait
from polyhal.hal.system.reference.op_calls import ExpectedResults, OpCall, evaluate, expected_results
from polyhal.hal.system.reference.tolerances import FloatErrors, float_errors

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.layout import Ref
    from polyhal.hal.ops.opdef import OpDef

_LENIENCE = 16.0
"""Maximum error of a device relative to NumPy's error in the same precision."""


class Deviation(NamedTuple):
    """The worst element of a wrong result."""

    output: str
    place: tuple[int, ...]
    got: Any
    expected: Any
    allowed: float
    wrong: int
    """Number of elements outside the bound, of `size`."""
    size: int

    def __str__(self) -> str:
        place = f" at {list(self.place)}" if self.place else ""
        return (
            f"{self.wrong} of {self.size} elements of {self.output!r} are wrong, worst{place}: got {_shown(self.got)}, the "
            f"reference is {_shown(self.expected)}, within {self.allowed:.3g}"
        )


class ReferenceCheck:
    """Raises WrongResultError at the first result that is outside its error bound."""

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Copy the inputs of a call, which may be overwritten, and compare its results after it has run."""
        values = call.values() if comparable(call) else None
        yield
        if values is None:
            return
        wrong = deviation_of(call, values, call.results())
        if wrong is not None:
            ran = f"; it ran as {call.resolution.how}" if call.resolution.how else ""
            raise WrongResultError(
                message(
                    call.op.name,
                    f"{wrong}; {call.locate()}{ran}",
                    device=call.device,
                    fix=f"`polyhal verify {call.device} --only 'forward/{call.op.name}/*'` examines the kernel",
                )
            )

    @contextmanager
    def observe_copy(self, device: Device, source: Ref, target: Ref) -> Iterator[None]:
        """Compare the bytes of a copied result with its source."""
        expected = device.download(source)
        yield
        if device.download(target).tobytes() != expected.tobytes():
            problem = f"the copy of a result, {target.spec}, differs from its source"
            raise WrongResultError(message("copy", problem, fix="run `polyhal verify`", device=device))


def comparable(call: ObservedCall) -> bool:
    """Return whether the reference determines the results."""
    if Trait.CROSS_DEVICE in call.op.traits or call.op.is_undefined or not any(o.size for o in call.outputs):
        return False
    # The user allowed rounding of operands, with a device-dependent error.
    return not ("precision" in call.op.settings and settings.precision == "medium")


def deviation_of(call: ObservedCall, values: tuple[Any, ...], results: tuple[np.ndarray, ...]) -> Deviation | None:
    """Return the deviation of results, given the values of the inputs before the call; None if they are within the bound."""
    return deviation(call.op, dict(call.params), values, results)


def deviation(
    op: OpDef, params: dict[str, Any], values: tuple[Any, ...], results: tuple[np.ndarray, ...]
) -> Deviation | None:
    """Return the deviation of an op's results, given the values of its inputs; None if they are within the bound."""
    checked = OpCall(op, values, params, Sample(values), 0)
    expected = expected_results(checked)
    names = op.schema.outputs
    for i, got in enumerate(results):
        name = names[i] if len(names) == len(results) else str(i)
        excess = _excess(got, expected, i)
        if (excess > 1).any() and not _ill_conditioned(checked, expected, i, float(excess.max())):
            return _deviation(name, got, expected, i, excess)
    return None


def _errors(got: np.ndarray, expected: ExpectedResults, i: int) -> FloatErrors:
    return float_errors(got, expected.values[i], as_dtype(got.dtype), expected.bounds[i])


def _excess(got: np.ndarray, expected: ExpectedResults, i: int) -> np.ndarray:
    """Return the error of each element as a multiple of its bound; infinity where the bound is 0."""
    dtype = as_dtype(got.dtype)
    if not dtype.is_floating_point:
        return np.where(got == expected.values[i].astype(dtype.numpy), 0.0, np.inf)
    found = _errors(got, expected, i)
    with np.errstate(all="ignore"):
        excess = np.where(found.limit > 0, found.error / found.limit, np.inf)
    counts = np.isfinite(excess)  # excludes bounds of 0, infinities and NaN
    right = found.flushed | (found.rounded & ~counts)
    return np.where(right, 0.0, np.where(counts, excess, np.inf))


def _ill_conditioned(call: OpCall, expected: ExpectedResults, i: int, excess: float) -> bool:
    """Return whether NumPy in the device's precision has a similar error, so that the inputs are the cause."""
    if not as_dtype(expected.values[i].dtype).is_floating_point or not np.isfinite(excess):
        return False
    narrow = tuple(_narrowed(v) for v in call.values)
    dtype = expected.outputs[i].dtype
    own = evaluate(call.op.reference, narrow, call.params)[i].astype(dtype.numpy)
    return excess <= _LENIENCE * float(_excess(own, expected, i).max())


def _narrowed(value: Any) -> Any:
    """Return an array in the precision of a device's arithmetic: half precision as float32."""
    half = isinstance(value, np.ndarray) and as_dtype(value.dtype).is_floating_point and value.itemsize < 4
    return value.astype(np.float32) if half else value


def _deviation(name: str, got: np.ndarray, expected: ExpectedResults, i: int, excess: np.ndarray) -> Deviation:
    index = np.unravel_index(int(np.argmax(excess)), excess.shape)
    limit = 0.0
    if as_dtype(got.dtype).is_floating_point:
        limit = float(_errors(got, expected, i).limit[index])
    place = tuple(int(k) for k in index)
    return Deviation(name, place, got[index], expected.values[i][index], limit, int((excess > 1).sum()), excess.size)


def _shown(value: Any) -> str:
    number = value.item() if hasattr(value, "item") else value
    return f"{number:.9g}" if isinstance(number, float) else repr(number)
