"""Check `bounds`: indices out of range, found before a kernel reads them.

A kernel cannot raise an error. On a CPU, reading the indices first costs little, so eager calls are always checked. On
other devices it would wait for the device, so the check is opt-in there, and in captured steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.core.dispatch.observer import ObservedCall
from polyhal.hal.core.dispatch.operands import scalar_dtype
from polyhal.hal.core.dispatch.poison import POISON
from polyhal.hal.core.execution.executor import thread
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import message
from polyhal.hal.layout import Ref, ScalarSpec

if TYPE_CHECKING:
    from polyhal.hal.device import Device
    from polyhal.hal.ops.schema import IndexRange, Specs


_CHUNK_BYTES = 1 << 20
"""Bytes per chunk: small enough to stay in a cache, and to avoid a copy of a long index."""


class IndexRangeError(IndexError):
    """An index or a label is out of range."""

    def __init__(self, op: str, problem: str, expected: str, operand: str, where: str, device: Device) -> None:
        """Report the index as `operand` of the op `op`, called at the line `where`."""
        self._parts = problem, expected, where, device
        super().__init__(message(op, problem, expected=expected, fix=f"look at {operand}, {where}", device=device))

    def named(self, op: str, operand: str = "the index") -> IndexRangeError:
        """Return the error under the name of the function that the program calls, for an op in its implementation."""
        problem, expected, where, device = self._parts
        return IndexRangeError(op, problem, expected, operand, where, device)


class BoundsCheck:
    """Raises IndexError for an index or a label out of range, on every device."""

    @contextmanager
    def observe(self, call: ObservedCall) -> Iterator[None]:
        """Check the indices of a call before it runs."""
        rule = call.op.index_range
        # Parts of ops may rely on the kernels' treatment of indices out of range.
        if rule is not None and not call.locate().part_of:
            specs, params = _specs(call.inputs), dict(call.params)
            call.op.infer(specs, params)  # may normalize parameters
            allowed = rule(specs, params)
            check_range(call.device, call.op.name, allowed, call.inputs[allowed.input], lambda: str(call.locate()))
        yield


BOUNDS = BoundsCheck()


def _specs(inputs: Any) -> Specs:
    """Return the specs of inputs, for the rules of an op. The rules ignore the values of numbers."""
    return tuple(x.spec if isinstance(x, Ref) else None if x is None else ScalarSpec(scalar_dtype(x)) for x in inputs)


def check_range(device: Device, op: str, allowed: IndexRange, index: Ref, where: Callable[[], str]) -> None:
    """Raise IndexError for an index outside the range; `where` returns the location of the call."""
    if allowed.low < 0 and not thread.counts_from_end:
        allowed = allowed._replace(low=0)
    if all(_inside(chunk, allowed) for chunk in _chunks(device, index)):
        return
    values = device.download(index)
    low, high, inside = _extremes(values, allowed)
    if not inside:
        wrong = low if low < allowed.low else high
        place = np.argwhere(values == wrong)[0].tolist() if allowed.ignored is None else None
        position = "" if not place else f" at {place}"
        problem, expected = f"index {wrong}{position} is out of range", f"{allowed.low} to {allowed.high - 1}"
        raise IndexRangeError(op, problem, expected, f"input {allowed.input}", where(), device)


def _chunks(device: Device, index: Ref) -> Iterator[np.ndarray]:
    """Yield the elements of an index, in chunks if it is contiguous. Each array is valid until the next one."""
    step = _CHUNK_BYTES // index.dtype.itemsize
    if index.size <= step or not index.is_contiguous:
        yield device.download(index)
        return
    memory = np.empty(step, index.dtype.numpy)
    for first in range(0, index.size, step):
        chunk = memory[: index.size - first]
        device.backend.copy_from_device(index.handle, (index.offset + first) * index.dtype.itemsize, byte_view(chunk))
        yield chunk


def _inside(values: np.ndarray, allowed: IndexRange) -> bool:
    """Return whether all indices are in range."""
    if allowed.low <= 0 < allowed.high and values.dtype.kind == "i" and values.size:
        # A single pass if no index is negative: as unsigned numbers, negative ones exceed all others.
        unsigned = values.view(values.dtype.str.replace("i", "u"))
        return int(unsigned.max()) < allowed.high or _extremes(values, allowed)[2]
    return _extremes(values, allowed)[2]


def _extremes(values: np.ndarray, allowed: IndexRange) -> tuple[int, int, bool]:
    """Return the minimum and maximum index, and whether they are in range."""
    if allowed.ignored is not None:
        values = values[values != allowed.ignored]
    if not values.size:
        return allowed.low, allowed.low, True
    low, high = int(values.min()), int(values.max())
    return low, high, low >= allowed.low and high < allowed.high


def debug(enabled: bool = True) -> None:
    """Switch debug mode on or off for the process; POLYHAL_DEBUG=1 switches it on at the start.

    Debug mode is the check `bounds` (see `polyhal.check`): calls, eager and captured, raise IndexError for an index or a label
    out of range on every device, as eager calls always do on CPUs. A check waits for the device. Uninitialized memory, as of
    `polyhal.empty`, is filled with NaN, or with the byte 0x5A in integers, so that a read of it shows in results.
    """
    others = tuple(o for o in settings.observers if o not in (BOUNDS, POISON))
    settings.observers = (*others, BOUNDS, POISON) if enabled else others


def is_debug() -> bool:
    """Return whether debug mode is on."""
    return BOUNDS in settings.observers


@contextmanager
def without_index_checks() -> Iterator[None]:
    """Disable index checks inside the block, on every device: for tests of kernels."""
    previous = settings.observers, settings.index_checks
    settings.observers, settings.index_checks = tuple(o for o in settings.observers if o is not BOUNDS), False
    try:
        yield
    finally:
        settings.observers, settings.index_checks = previous


debug(env.debug())
