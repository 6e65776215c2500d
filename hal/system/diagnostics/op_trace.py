"""The trace of a program: one record for each op that runs, with its kernels, bytes and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from polyhal.hal.compile.planning.resolution import ResolutionStep
from polyhal.hal.core.dispatch.observer import ObservedCall
from polyhal.hal.core.execution.location import SourceLocation
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref
from polyhal.hal.protocol import SupportsProfiling

_LISTED = 4
"""Maximum number of operands that the text of an op lists."""


class TracedOp(NamedTuple):
    """One op that ran."""

    op: str
    device: str
    operands: tuple[str, ...]
    """Dtypes and shapes of tensors, numbers as text, and `none` for absent operands."""
    results: tuple[str, ...]
    step: ResolutionStep | None
    """How it ran, see `Resolution`."""
    kernels: tuple[str, ...] | None
    """Kernels in the order of their launches; None on devices without timestamps, such as NumPy."""
    nbytes: int
    """Bytes of all operands and results."""
    seconds: float
    """From the call until the device has finished: launches, copies and waiting."""
    location: SourceLocation

    def __str__(self) -> str:
        return f"{self.op}({_listed(self.operands)}) -> {_listed(self.results)}"


class OpTrace:
    """An observer that waits for each op and emits its record. Ops of several threads are traced one after the other."""

    def __init__(self, emit: Callable[[TracedOp], None]) -> None:
        self._emit = emit
        self._lock = threading.RLock()

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Run a call and emit its record, unless it fails."""
        with self._lock:
            call.device.synchronize()
            with _kernels(call.device) as kernels:
                begin = time.perf_counter()
                yield
                call.device.synchronize()
                seconds = time.perf_counter() - begin
            tensors = [x for x in (*call.inputs, *call.outputs) if isinstance(x, Ref)]
            self._emit(
                TracedOp(
                    call.op.name,
                    call.device.name,
                    tuple("none" if x is None else _text(x) for x in call.inputs),
                    tuple(map(_text, call.outputs)),
                    call.resolution.step,
                    None if kernels is None else tuple(kernels),
                    sum(x.spec.nbytes for x in tensors),
                    seconds,
                    call.locate(),
                )
            )


@contextmanager
def _kernels(device: Device) -> Iterator[list[str] | None]:
    """Yield a list, to which the kernels that were launched inside the block are added at its end; None without timestamps."""
    backend = device.backend
    if not isinstance(backend, SupportsProfiling):
        yield None
        return
    names: list[str] = []
    backend.start_profiling()
    try:
        yield names
    finally:
        names += [name for name, _, _ in backend.stop_profiling()]


def _listed(texts: tuple[str, ...]) -> str:
    """Join texts by commas, many of them shortened to the first ones and a count."""
    shown = texts if len(texts) <= _LISTED else (*texts[: _LISTED - 1], f"... {len(texts)} in all")
    return ", ".join(shown)


def _text(x: object) -> str:
    return str(x.spec) if isinstance(x, Ref) else repr(x)
