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

from polyhal.hal.core.dispatch.observer import ObservedCall
from polyhal.hal.layout import Ref
from polyhal.hal.system.checks.reference import comparable, deviation_of
from polyhal.hal.system.checks.scoped import ScopedExecutor

_SAMPLED = 256
"""Maximum elements of a result that a record keeps."""
_FAR = 0.05
"""Minimum relative difference that is too large to be rounding."""


@dataclass(frozen=True, slots=True)
class OpExecution:
    """An executed op: its name, digests of its inputs and results, and sampled elements of the results."""

    op: str
    results: tuple[str, ...]
    """Dtypes and shapes of the results."""
    location: str
    inputs: tuple[str, ...]
    """Digests of input tensors; numbers as text."""
    digests: tuple[str, ...]
    """Digests of the results."""
    samples: tuple[str, ...]
    """Evenly spaced elements of each result in float64, in base64."""
    deviation: str = ""
    """Deviation of a result from the reference; empty if there is none, or it was not compared."""

    @property
    def what(self) -> str:
        """Return op and results as text for messages."""
        return f"{self.op} -> {', '.join(self.results)}"

    def elements(self) -> list[np.ndarray]:
        """Return the sampled elements of each result."""
        return [np.frombuffer(base64.b64decode(s), np.float64) for s in self.samples]

    def distance(self, other: OpExecution) -> float:
        """Return the largest difference of sampled elements, relative to the largest element; 0 between two NaNs."""
        worst = 0.0
        for a, b in zip(self.elements(), other.elements(), strict=True):
            with np.errstate(all="ignore"):
                same = (a == b) | (np.isnan(a) & np.isnan(b))
                size = float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b)))
                off = np.where(same, 0.0, np.abs(a - b) / (size or 1.0))
            worst = max(worst, float(np.max(np.where(np.isnan(off), np.inf, off), initial=0.0)))
        return worst

    def as_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> OpExecution:
        """Return the record that `as_json` wrote."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**values)


class OpRecorder:
    """An observer that records every op of the main thread, because the order of other threads' ops varies from run to run."""

    def __init__(self, emit: Callable[[OpExecution], None], *, references: bool) -> None:
        """Pass records to `emit`; `references` also compares results with the reference."""
        self._emit = emit
        self._references = references

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Copy the inputs, and record the call after it has run."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        values = call.values()
        yield
        # Uninitialized elements differ from run to run.
        results = tuple(map(np.zeros_like, call.results())) if call.op.is_undefined else call.results()
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
    """Locates ops, and runs captured functions op by op, so that the sequence of ops is equal on every device."""

    __slots__ = ()

    replays_graphs = False


def digest(array: np.ndarray) -> str:
    """Return a digest of the bytes of an array."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()


def _sampled(array: np.ndarray) -> str:
    flat = array.reshape(-1)
    picked = flat if flat.size <= _SAMPLED else flat[np.linspace(0, flat.size - 1, _SAMPLED).astype(np.int64)]
    return base64.b64encode(picked.astype(np.float64).tobytes()).decode()


class Parting:
    """Finds the first op at which two runs diverge."""

    def __init__(self, names: Sequence[str], *, bits: bool) -> None:
        """Compare the runs called `names`. `bits` requires equal bits; otherwise differences within rounding are allowed."""
        self._names = names
        self._bits = bits
        self.count = 0
        """Number of compared ops."""
        self.largest = 0.0
        """Largest relative difference so far."""

    def compare(self, a: OpExecution, b: OpExecution) -> list[str]:
        """Return lines that describe the difference at the next op; none if the runs agree."""
        self.count += 1
        if (a.op, a.results) != (b.op, b.results):
            return self._lines("the runs execute different ops", a, [(0, a.what), (1, f"{b.what}, {b.location}")])
        if self._bits:
            return self._compare_bits(a, b)
        off = [(i, r.deviation) for i, r in enumerate((a, b)) if r.deviation]
        if off:
            right = [(i, "equal to the reference") for i in (0, 1) if i not in dict(off)]
            return self._lines("the results diverge", a, [*off, *right])
        distance = a.distance(b)
        if distance > _FAR:
            problem = f"the results differ by {distance:.2g} of the largest element, by rounding that has grown"
            lines = self._lines(problem, a, [])
            return [*lines, "  each op so far was within its error bound for its inputs"]
        self.largest = max(self.largest, distance)
        return []

    def _compare_bits(self, a: OpExecution, b: OpExecution) -> list[str]:
        changed = [i for i, (x, y) in enumerate(zip(a.inputs, b.inputs, strict=True)) if x != y]
        if changed:
            problem = f"input {changed[0]}, which no op produced, differs between the runs"
            fix = "  seed other random sources of the program, and avoid times and unordered sets"
            return [*self._lines(problem, a, [(0, a.inputs[changed[0]]), (1, b.inputs[changed[0]])]), fix]
        if a.digests == b.digests:
            return []
        values = []
        for x, y in zip(a.elements(), b.elements(), strict=True):
            different = np.flatnonzero(~((x == y) | (np.isnan(x) & np.isnan(y))))
            values += [(x[i], y[i]) for i in different[:1]]
        shown = [(0, f"{values[0][0]:.17g}"), (1, f"{values[0][1]:.17g}")] if values else []
        return self._lines("equal inputs produce different bits", a, shown)

    def _lines(self, problem: str, record: OpExecution, each: Sequence[tuple[int, str]]) -> list[str]:
        agree = "" if self._bits or self.count == 1 else f"; results before it agree within {self.largest:.2g}"
        return [
            f"{problem} at op {self.count}: {record.what}{agree}",
            f"  {record.location}",
            *(f"  {self._names[i]}: {text}" for i, text in each),
        ]
