"""Check `nan`: stop at the first op that produces a NaN or an infinity.

Infinities that the program writes itself (`x.masked_fill(mask, -inf)`) are intended, and so are infinities computed
from them, until an op turns one into a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from polyhal.hal.core.dispatch.observer import ObservedCall
from polyhal.hal.errors import NonFiniteError, message
from polyhal.hal.layout import Ref

Extent = tuple[int, int]
"""First byte, and one past the last byte."""


class FiniteCheck:
    """Raises NonFiniteError if a result has a NaN, or an infinity that the program did not write."""

    def __init__(self) -> None:
        self._meant: dict[int, list[Extent]] = {}
        """Extents with intended infinities, by the identity of the handle."""

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Check the results of a call after it has run."""
        refs = [x for x in call.inputs if isinstance(x, Ref)]
        meant = _writes_infinity((call.inputs, tuple(call.params.values()))) or any(map(self._is_meant, refs))
        yield
        for out in call.outputs:
            if out.dtype.kind != "float" or not out.size or call.op.is_undefined:
                continue
            values = call.device.download(out)
            wide = _wide(values)
            if np.isfinite(wide).all():
                self._note(out, False)
            elif meant and not np.isnan(wide).any():
                self._note(out, True)
            else:
                raise NonFiniteError(_description(call, values))

    def _is_meant(self, ref: Ref) -> bool:
        first, end = extent_in_bytes(ref)
        return any(a < end and first < b for a, b in self._meant.get(id(ref.handle), ()))

    def _note(self, ref: Ref, meant: bool) -> None:
        """Record whether the infinities in newly written memory are intended."""
        known = self._meant.pop(id(ref.handle), [])
        if meant or known:
            first, end = extent_in_bytes(ref)
            kept = [(a, b) for a, b in known if b <= first or end <= a]
            self._meant[id(ref.handle)] = [*kept, (first, end)] if meant else kept


def _writes_infinity(values: Iterable[Any]) -> bool:
    """Return whether operands or parameters contain an infinite number."""
    return any(
        _writes_infinity(x) if isinstance(x, (tuple, list)) else isinstance(x, float) and math.isinf(x) for x in values
    )


def extent_in_bytes(ref: Ref) -> Extent:
    """Return the byte offsets of the start and the end of a tensor."""
    steps = [(n - 1) * s for n, s in zip(ref.spec.shape, ref.spec.strides, strict=True)]
    low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    size = ref.dtype.itemsize
    return (ref.offset + low) * size, (ref.offset + high + 1) * size


def _description(call: ObservedCall, values: np.ndarray) -> str:
    wide = _wide(values)
    nans, infinities = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    # The memory of an overwritten input no longer holds the input.
    inputs = [x for x in call.inputs if isinstance(x, Ref) and all(x.handle is not o.handle for o in call.outputs)]
    sound = all(np.isfinite(_wide(call.device.download(x))).all() for x in inputs)
    origin = "its inputs are finite" if sound else "an input was already not finite"
    problem = f"the result has {nans} NaN and {infinities} infinite of {wide.size} values, {origin}; {call.locate()}"
    return message(call.op.name, problem)


def _wide(values: np.ndarray) -> Any:
    """Return values in a dtype that NumPy's functions support."""
    return values.astype(np.float32) if values.dtype.kind == "V" else values
