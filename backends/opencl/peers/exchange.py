"""Exchanges between OpenCL devices: kernels that write to each other's windows (see shaders/opencl/collective/exchange.cl).

The host starts them and waits for nothing. They keep to the order in which they were started, whatever streams they run on.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyopencl as cl

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref
from polyhal.hal.settings import env

if TYPE_CHECKING:
    from polyhal.backends.opencl.device_runtime import DeviceRuntime
    from polyhal.backends.opencl.peers.windows import Windows
    from polyhal.backends.opencl.queues import CommandQueue
    from polyhal.hal.protocol import Launch

MOST_MEMBERS = 16
"""More would take more parameters than every device has room for."""
_LINE = 128
"""Bytes of the flags of a channel."""
VECTOR = 16
"""Bytes that a work-item moves at once."""
_KEPT_LAUNCHES = 512
_FOR_EVER = 1e9
_UNITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "ulong2"}


class Geometry(NamedTuple):
    """How an exchange is divided among work-groups."""

    channels: int
    """Work-groups, each with slots of its own."""
    group: int
    """Work-items of each."""
    slot: int
    """Bytes that a channel writes to another member in a step."""

    def window_bytes(self, members: int) -> int:
        """Bytes of the window of each of so many members."""
        return (self.channels + 1) * _LINE + self.channels * 2 * (members - 1) * self.slot


class Range(NamedTuple):
    """A range of elements."""

    start: int
    size: int


NOTHING = Range(0, 0)


class Exchange(NamedTuple):
    """What one member does."""

    send: tuple[Range, ...]
    """What it sends to each member, and what it has of its own part: ranges of its source."""
    receive: tuple[Range, ...]
    """Where it puts what comes from each member, and its own part: ranges of its target."""
    longest: int
    """Elements of the longest range that any member sends."""
    operation: str = ""
    """Combines the parts of all members: sum, largest or smallest. Without one they are only moved."""
    gathers: bool = True
    """Whether members receive; those that combine need not."""
    result_start: int = 0
    """Where the combination of this member's part lies in the target."""


class Exchanger:
    """Carries out exchanges among members with windows. Calls of several threads follow one another."""

    def __init__(
        self, runtimes: Sequence[DeviceRuntime], windows: Windows, geometry: Geometry, first: int = 0
    ) -> None:
        """`runtimes` are the members of this process, which follow member `first`, and `windows` what each knows of all."""
        self._runtimes = runtimes
        self._windows = windows
        self._geometry = geometry
        self._first = first
        self._members = len(windows[0])
        self._launches: dict[object, Launch] = {}
        self._last: list[tuple[CommandQueue, cl.Event] | None] = [None] * len(runtimes)
        """The end of the last exchange on each device, and its queue."""
        self._lock = threading.Lock()

    def run(
        self,
        exchanges: Sequence[Exchange],
        sources: Sequence[Ref],
        targets: Sequence[Ref],
        *,
        trial_seconds: float | None = None,
    ) -> list[cl.Event]:
        """Start what each member of this process does, on the thread's streams. Returns the end of each.

        Sources and targets have one dtype. If the others do not take part within POLYHAL_COLLECTIVE_TIMEOUT, the device gives
        up, and whatever follows on it raises; with `trial_seconds`, the result is wrong after so many. Raises pyopencl.Error.
        """
        with self._lock:
            for runtime in self._runtimes:
                runtime.queues.current().make_room()
            ends = [
                self._enqueue(i, exchange, source, target, trial_seconds)
                for i, (exchange, source, target) in enumerate(zip(exchanges, sources, targets, strict=True))
            ]
            for runtime in self._runtimes:
                runtime.queue.flush()  # those of some devices wait for those of others
        return ends

    def _enqueue(self, i: int, exchange: Exchange, source: Ref, target: Ref, trial_seconds: float | None) -> cl.Event:
        """Enqueue the kernel of one device after the last one, which used the same window."""
        queue = self._runtimes[i].queues.current()
        last = self._last[i]
        if last is not None and last[0] is not queue:
            queue.wait_for(last[1])
        launch = self._launch(i, exchange, source, target, trial_seconds)
        launch(source, target, *self._windows[i])
        end = queue.mark()
        self._last[i] = queue, end
        return end

    def _launch(self, i: int, exchange: Exchange, source: Ref, target: Ref, trial_seconds: float | None) -> Launch:
        size = source.dtype.itemsize
        starts = [r.start for r in (*exchange.send, *exchange.receive)] + [exchange.result_start]
        aligned = not any(n * size % VECTOR for n in (source.offset, target.offset, *starts))
        key = i, exchange, source.dtype, aligned, trial_seconds
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= _KEPT_LAUNCHES:
                self._launches.clear()
            launch = self._launches[key] = self._build(i, exchange, source.dtype, aligned, trial_seconds)
        return launch

    def _build(
        self, i: int, exchange: Exchange, dtype: DType, aligned: bool, trial_seconds: float | None
    ) -> Launch:
        channels, group, slot = self._geometry
        size, numbers = dtype.itemsize, range(self._members)
        # Copies depend on the size of elements alone.
        combined = dtype.name if exchange.operation and dtype.kind != "bool" else "uint8"
        definitions: dict[str, str | int | bool] = {
            "DTYPE": combined, "UNIT": _UNITS[size], "LANES": VECTOR // size, "ALIGNED": aligned,
            "REDUCES": bool(exchange.operation), "GATHERS": exchange.gathers,
            "OPERATION": exchange.operation or "sum",
            "MEMBERS": self._members, "GROUP": group, "CHANNELS": channels, "SLOT": slot,
            "WINDOW_PARAMETERS": ", ".join(f"__global uchar *window{n}" for n in numbers),
            "WINDOWS": ", ".join(f"window{n}" for n in numbers),
        }  # fmt: skip
        piece = min(slot, round_up(ceil_div(exchange.longest * size, channels), group * VECTOR)) // size
        seconds = trial_seconds or env.collective_timeout() or _FOR_EVER
        args: Arguments = {
            "source": Tensor(0), "target": Tensor(1), **{f"window{n}": Workspace(2 + n) for n in numbers},
            "send_start": tuple(r.start for r in exchange.send), "send_size": tuple(r.size for r in exchange.send),
            "receive_start": tuple(r.start for r in exchange.receive),
            "receive_size": tuple(r.size for r in exchange.receive),
            "result_start": exchange.result_start, "longest": exchange.longest, "limit": int(seconds * 1e9),
            "me": self._first + i, "piece": piece, "fatal": int(trial_seconds is None), "unused": 0,
        }  # fmt: skip
        groups = min(channels, ceil_div(exchange.longest, piece))
        return self._runtimes[i].launch("collective/exchange", definitions, args, (groups * group,), (group,))
