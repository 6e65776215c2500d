"""Records of the ops that a program runs, for the comparison of two runs."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from polyhal.hal.checks.observer import ObservedCall
from polyhal.hal.checks.reference import comparable, deviation_of
from polyhal.hal.checks.scoped import ScopedExecutor
from polyhal.hal.layout import Ref

_SAMPLED = 256
"""Elements of a result that a record keeps."""
_FAR = 0.05
"""A relative difference that a user would not call rounding any more."""


@dataclass(frozen=True, slots=True)
class OpExecution:
    """One op that ran: what it was, digests of its inputs and results, and elements of the results."""

    op: str
    results: tuple[str, ...]
    """Dtypes and shapes."""
    location: str
    inputs: tuple[str, ...]
    """Digests of tensors; numbers as text."""
    digests: tuple[str, ...]
    """Of the results."""
    samples: tuple[str, ...]
    """Evenly spaced elements of each result in float64, in base64."""
    deviation: str = ""
    """How a result differs from the reference; empty if it does not, or was not compared."""

    @property
    def what(self) -> str:
        """The op and its results, for messages."""
        return f"{self.op} -> {', '.join(self.results)}"

    def elements(self) -> list[np.ndarray]:
        """The elements that were kept of each result."""
        return [np.frombuffer(base64.b64decode(s), np.float64) for s in self.samples]

    def distance(self, other: OpExecution) -> float:
        """The largest difference of the kept elements, relative to the largest element; 0 between equal NaNs."""
        worst = 0.0
        for a, b in zip(self.elements(), other.elements(), strict=True):
            with np.errstate(all="ignore"):
                same = (a == b) | (np.isnan(a) & np.isnan(b))
                size = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
                off = np.where(same, 0.0, np.abs(a - b) / (size or 1.0))
            worst = max(worst, float(np.max(np.where(np.isnan(off), np.inf, off), initial=0.0)))
        return worst

    def as_json(self) -> dict[str, Any]:
        """The record as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> OpExecution:
        """The record that `as_json` made."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**values)


class OpRecorder:
    """An observer that records every op of the main thread: elsewhere the order would change from run to run."""

    def __init__(self, emit: Callable[[OpExecution], None], *, references: bool) -> None:
        """`references` compares results with the reference as well."""
        self._emit = emit
        self._references = references

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Keep the inputs, and record the call when it has run."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        values = call.values()
        yield
        # Uninitialized elements differ from run to run.
        results = tuple(map(np.zeros_like, call.results())) if call.is_undefined else call.results()
        deviation = deviation_of(call, values, results) if self._references and comparable(call) else None
        self._emit(
            OpExecution(
                call.op.name,
                tuple(f"{o.dtype.name}{list(o.shape)}" for o in call.outputs),
                str(call.locate()),
                tuple(digest(v) if isinstance(x, Ref) else repr(v) for x, v in zip(call.inputs, values, strict=True)),
                tuple(map(digest, results)),
                tuple(map(_sampled, results)),
                "" if deviation is None else str(deviation),
            )
        )


class UncapturedExecutor(ScopedExecutor):
    """Locates ops, and has captured functions run op by op, so that the ops are the same on every device."""

    __slots__ = ()

    replays_graphs = False


def digest(array: np.ndarray) -> str:
    """A digest of the bytes of an array."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()


def _sampled(array: np.ndarray) -> str:
    flat = array.reshape(-1)
    picked = flat if flat.size <= _SAMPLED else flat[np.linspace(0, flat.size - 1, _SAMPLED).astype(np.int64)]
    return base64.b64encode(picked.astype(np.float64).tobytes()).decode()


class Parting:
    """Finds the first op at which two runs part."""

    def __init__(self, names: Sequence[str], *, bits: bool) -> None:
        """`names` are those of the runs; `bits` requires equal bits, else results may differ as rounding explains."""
        self._names = names
        self._bits = bits
        self.count = 0
        """Ops compared."""
        self.largest = 0.0
        """The largest relative difference so far."""

    def compare(self, a: OpExecution, b: OpExecution) -> list[str]:
        """What differs at the next op, as lines; none if the runs agree."""
        self.count += 1
        if (a.op, a.results) != (b.op, b.results):
            return self._lines("the runs do other things", a, [(0, a.what), (1, f"{b.what}, {b.location}")])
        if self._bits:
            return self._compare_bits(a, b)
        off = [(i, r.deviation) for i, r in enumerate((a, b)) if r.deviation]
        if off:
            right = [(i, "as the reference says") for i in (0, 1) if i not in dict(off)]
            return self._lines("the results part", a, [*off, *right])
        distance = a.distance(b)
        if distance > _FAR:
            problem = f"the results differ by {distance:.2g} of the largest element, by rounding that has grown"
            lines = self._lines(problem, a, [])
            return [*lines, "  each op so far was as exact as it has to be for its inputs"]
        self.largest = max(self.largest, distance)
        return []

    def _compare_bits(self, a: OpExecution, b: OpExecution) -> list[str]:
        changed = [i for i, (x, y) in enumerate(zip(a.inputs, b.inputs, strict=True)) if x != y]
        if changed:
            problem = f"input {changed[0]}, which no op made, differs between the runs"
            fix = "  seed what the program draws from elsewhere, and leave out times and unordered sets"
            return [*self._lines(problem, a, [(0, a.inputs[changed[0]]), (1, b.inputs[changed[0]])]), fix]
        if a.digests == b.digests:
            return []
        values = []
        for x, y in zip(a.elements(), b.elements(), strict=True):
            different = np.flatnonzero(~((x == y) | (np.isnan(x) & np.isnan(y))))
            values += [(x[i], y[i]) for i in different[:1]]
        shown = [(0, f"{values[0][0]:.17g}"), (1, f"{values[0][1]:.17g}")] if values else []
        return self._lines("equal inputs give other bits", a, shown)

    def _lines(self, problem: str, record: OpExecution, each: Sequence[tuple[int, str]]) -> list[str]:
        agree = "" if self._bits or self.count == 1 else f"; results before it agree within {self.largest:.2g}"
        return [
            f"{problem} at op {self.count}: {record.what}{agree}",
            f"  {record.location}",
            *(f"  {self._names[i]}: {text}" for i, text in each),
        ]
