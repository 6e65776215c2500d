"""Compares a device's run of a program with PyTorch's, within errors that the program's own condition allows.

The truth is PyTorch in double precision. A value may be as far from it as several times the error of PyTorch in the program's
own dtypes. A value that agrees with PyTorch's in those dtypes is within that, so that most programs need no other run. Where
one is farther, the program runs up to two dozen times more in double precision with errors of some units in the last place
after every statement: elements whose runs disagree (ties, jumps, chaos) are not judged, and the spread of the
others widens the bound. A difference that remains is a finding.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.reliability.programs.difference import Difference, Extra, Missing, OneError, WrongFact, WrongValue
from benchmarks.reliability.programs.execute import Observation, run
from benchmarks.reliability.programs.libraries import Double, PyTorch, Value
from benchmarks.reliability.programs.program import Program

UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_SMALLEST = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 0.0}
"""Below the least normal number devices may give 0."""
_FACTOR = 64.0
"""Device and PyTorch round at most so differently: sums of 300 elements in another order, several of them in one gradient, and
functions to 4 units. Values are about 1 in programs: terms of that size may cancel within an op or its gradient."""
_JUMP = 512.0
"""Maximum condition of an element that is judged."""
_REFUSALS = ("modified by an inplace operation", "Trying to backward through the graph a second time")
_PROBES = (3, 7, 24)
"""Runs with errors: a value that so many do not explain is judged by more, and a difference is believed after the last."""


class Truth:
    """PyTorch's runs of a program, made when they are first asked for."""

    def __init__(self, program: Program, calls: int = 1) -> None:
        self.program = program
        self.calls = calls
        self._probes: list[Sequence[Observation]] = []

    @functools.cached_property
    def native(self) -> Sequence[Observation]:
        """Runs in the program's own dtypes."""
        return self._run(PyTorch())

    @functools.cached_property
    def lenient(self) -> Sequence[Observation]:
        """Runs in the program's own dtypes, in which backward passes that PyTorch refuses are computed."""
        return self._run(PyTorch(lenient=True)) if self.is_refused else self.native

    @functools.cached_property
    def double(self) -> Sequence[Observation]:
        """Runs in double precision. Backward passes that PyTorch refuses are computed, with values as they were saved."""
        return self._run(Double(lenient=self.is_refused))

    @property
    def is_refused(self) -> bool:
        """True if PyTorch refuses a statement of the program because a saved value was overwritten or freed."""
        ends = (o.raised[o.end].message for o in self.native if o.end is not None)
        return any(refusal in message for message in ends for refusal in _REFUSALS)

    def probe(self, k: int) -> Sequence[Observation]:
        """Run in double precision with errors of `sizes[k]` after each statement."""
        while len(self._probes) <= k:
            made = len(self._probes)
            self._probes.append(self._run(Double(self.sizes[made], made, lenient=self.is_refused)))
        return self._probes[k]

    @functools.cached_property
    def sizes(self) -> list[float]:
        """The errors of the probes, relative to values: 1 to 64 units."""
        unit = max(UNITS[d] for d in self._dtypes())
        return [unit * 2.0 ** (k % 7) for k in range(_PROBES[-1])]

    def _dtypes(self) -> set[str]:
        seen = {v.dtype for o in self.native for v in o.values.values()} | {leaf.dtype for leaf in self.program.leaves}
        return (seen & UNITS.keys()) or {"float32"}

    def _run(self, library: PyTorch) -> Sequence[Observation]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return run(self.program, library, self.calls)


def differences(truth: Truth, seen: Sequence[Observation], *, captured: bool = False) -> list[Difference]:
    """List the differences of a device's observations from PyTorch's."""
    with np.errstate(all="ignore"):
        return [d for number, o in enumerate(seen) for d in _of_call(truth, number, o, captured)]


def _of_call(truth: Truth, number: int, seen: Observation, captured: bool) -> Iterator[Difference]:
    native = truth.native[number]
    lenient = truth.is_refused and seen.end != native.end
    expected = truth.double[number] if lenient else native
    if captured:
        if seen.raised:
            yield OneError(number, "call", -1, seen.raised[-1], is_ours=True)
            return
    elif seen.raised.keys() != expected.raised.keys():
        yield from _errors(number, seen, expected)
        return
    failed = expected.end is not None
    for name, value in expected.values.items():
        if failed and name.endswith(".grad"):
            continue  # a backward pass that fails leaves some gradients
        found = seen.values.get(name)
        if found is None:
            if not _is_argument_gradient(name):
                yield Missing(number, name, value)
            continue
        rounded = (truth.lenient[number] if lenient else native).values.get(name)
        problem = None if lenient else _facts(truth, number, name, found, rounded or value, captured)
        if problem is None and not _is_near(found, rounded):
            problem = _values(truth, number, name, found, rounded)
        if problem is not None:
            yield problem
    for name in sorted(seen.values.keys() - expected.values.keys()):
        if not failed and not _is_argument_gradient(name):
            yield Extra(number, name, seen.values[name], captured)


def _errors(number: int, seen: Observation, expected: Observation) -> Iterator[OneError]:
    """Yield the errors of only one library, up to the first that ended a call: the other one went on alone after it."""
    last = min((o.end for o in (seen, expected) if o.end is not None), default=None)
    for position in sorted(seen.raised.keys() ^ expected.raised.keys()):
        if last is None or position <= last:
            is_ours = position in seen.raised
            error = (seen if is_ours else expected).raised[position]
            yield OneError(number, "errors", position, error, is_ours)


def _is_argument_gradient(name: str) -> bool:
    """Return whether a gradient is of a result: some functions return their argument in only one library."""
    return name[0] == "v" and name.endswith(".grad")


def _varies(truth: Truth, number: int, name: str, shape: tuple[int, ...]) -> bool:
    """Return whether errors change a shape, which depends on values."""
    runs = (truth.probe(k)[number].values for k in range(_PROBES[-1]))
    return any(name not in values or values[name].array.shape != shape for values in runs)


def _facts(truth: Truth, number: int, name: str, found: Value, expected: Value, captured: bool) -> WrongFact | None:
    shape = expected.array.shape
    if found.array.shape != shape:
        varies = _varies(truth, number, name, shape)
        return None if varies else WrongFact(number, name, "shape", found.array.shape, shape)
    if found.dtype != expected.dtype:
        return WrongFact(number, name, "dtype", found.dtype, expected.dtype)
    if found.requires_grad != expected.requires_grad and not captured:
        return WrongFact(number, name, "requires_grad", found.requires_grad, expected.requires_grad)
    return None


def _is_near(found: Value, native: Value | None) -> bool:
    """Return whether a value is so near PyTorch's in the program's dtypes that it is right wherever PyTorch's is."""
    if native is None or native.array.shape != found.array.shape:
        return False
    a, b = found.array, native.array
    same = a == b
    if not same.all() and found.dtype in UNITS:
        size = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        same |= (np.abs(a - b) <= _FACTOR * UNITS[found.dtype] * size) | (np.isnan(a) & np.isnan(b))
    return bool(same.all())


def _values(truth: Truth, number: int, name: str, found: Value, native: Value | None) -> Difference | None:
    if name not in truth.double[number].values:
        return None
    exact = truth.double[number].values[name].array
    if exact.shape != found.array.shape:
        varies = _varies(truth, number, name, exact.shape)
        return None if varies else WrongFact(number, name, "shape", found.array.shape, exact.shape)
    others = [exact if native is None or native.array.shape != exact.shape else native.array]
    wrong = _wrong(found, exact, others, np.zeros(exact.shape, bool))
    for count in _PROBES:
        if not wrong.any():
            return None
        for k in range(len(others) - 1, count):
            values = truth.probe(k)[number].values
            if name not in values or values[name].array.shape != exact.shape:
                return None  # errors change which statements fail, or shapes
            others.append(values[name].array)
        wrong = _wrong(found, exact, others, _unstable(exact, others, [truth.sizes[0], *truth.sizes[:count]]))
    if not wrong.any():
        return None
    return WrongValue(number, name, found.array[wrong], exact[wrong], np.argwhere(wrong), wrong.size, found.dtype)


def _wrong(found: Value, exact: np.ndarray, others: list[np.ndarray], ignored: np.ndarray) -> np.ndarray:
    """Mark found elements that are farther from the exact ones than the others allow."""
    a, b = found.array, exact
    if found.dtype not in UNITS:
        wrong = a != b
        for other in others:
            wrong &= (a != other) | (other != b if len(others) == 1 else False)
        return wrong & ~ignored
    a, b = a.astype(np.float64), b.astype(np.float64)
    unit = UNITS[found.dtype]
    error = np.zeros(())
    usual = np.isfinite(b) & ~ignored
    for other in others:
        usual = usual & np.isfinite(other)
    for other in others:
        off = np.abs(other - b)[usual]
        error = np.maximum(error, off.max(initial=0.0))
    size = np.abs(b)[usual].max(initial=0.0)
    allowed = _FACTOR * (error + unit * max(size, 1.0)) + _SMALLEST[found.dtype]
    far = ~(np.abs(a - b) <= allowed)
    same = (np.isnan(a) & np.isnan(b)) | (a == b)
    for other in others[:1]:
        same |= (np.isnan(a) & np.isnan(other)) | (a == other)
    return far & ~same & ~ignored


def _unstable(exact: np.ndarray, others: list[np.ndarray], sizes: list[float]) -> np.ndarray:
    """Mark elements that jump: errors change them from finite to not, or many times as much as values; integers that change."""
    unstable = np.zeros(exact.shape, bool)
    for other, size in zip(others, sizes, strict=True):
        if exact.dtype.kind in "biu":
            unstable |= other != exact
        else:
            unstable |= np.isfinite(other) != np.isfinite(exact)
            unstable |= np.abs(other - exact) > _JUMP * size * np.maximum(np.abs(exact), 1.0)
    return unstable
