"""Exchanges: every participant writes parts of a vector to the windows of all others."""

from __future__ import annotations

from typing import NamedTuple

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Arguments, Tensor, Workspace
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Launch

MAX_PARTICIPANTS = 16
"""Maximum number of participants: the parameters of more exceed some devices' limit."""
_VOLTA = 70
"""Oldest compute capability with scopes of memory accesses."""
_LINE = 128
"""Bytes of a channel's flags, one cache line."""
VECTOR = 16
"""Bytes that a work-item moves at once."""
_UNITS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "ulong2"}


class Geometry(NamedTuple):
    """How an exchange is divided among work-groups."""

    channels: int
    """Work-groups, each with its own slots."""
    group: int
    """Work-items per work-group."""
    slot: int
    """Bytes that a channel writes to another participant in a step."""
    batch: int = 4
    """Vectors that a work-item reads before it writes them."""

    def window_bytes(self, members: int) -> int:
        """Return the bytes of each participant's window for `members` participants."""
        return (self.channels + 1) * _LINE + self.channels * 2 * (members - 1) * self.slot


class Range(NamedTuple):
    """A range of elements."""

    start: int
    size: int


NOTHING = Range(0, 0)


class Exchange(NamedTuple):
    """One participant's part of an exchange."""

    send: tuple[Range, ...]
    """Ranges of the source that it sends to each participant; at its own index, its contribution to its own part."""
    receive: tuple[Range, ...]
    """Ranges of the target for the data from each participant; at its own index, the range of its own part."""
    longest: int
    """Elements of the longest range that any participant sends."""
    operation: str = ""
    """Reduction of the participants' contributions: sum, largest or smallest; empty if data is only moved."""
    gathers: bool = True
    """True if participants receive the parts of others; False if reduced parts stay with their owners."""
    result_start: int = 0
    """Start of this participant's reduced part in the target."""


def build(
    runtime: Runtime,
    exchange: Exchange,
    geometry: Geometry,
    me: int,
    dtype: DType,
    *,
    aligned: bool,
    seconds: float,
    fatal: bool,
) -> Launch:
    """Build a launch (source, target, windows) of participant `me`; if `aligned`, all parts begin at multiples of 16 bytes.

    If other participants are missing after the given seconds, a `fatal` launch stops the device, else the result is
    wrong.
    """
    channels, group, slot, batch = geometry
    size, numbers = dtype.itemsize, range(len(exchange.send))
    # Copies depend only on the size of elements.
    combined = dtype.name if exchange.operation and dtype.kind != "bool" else "uint8"
    definitions: dict[str, str | int | bool] = {
        "DTYPE": combined,
        "UNIT": _UNITS[size],
        "LANES": VECTOR // size,
        "ALIGNED": aligned,
        "REDUCES": bool(exchange.operation),
        "GATHERS": exchange.gathers,
        "OPERATION": exchange.operation or "sum",
        "SCOPED_FLAGS": runtime.features.compute_capability >= _VOLTA,
        "MEMBERS": len(numbers),
        "GROUP": group,
        "CHANNELS": channels,
        "SLOT": slot,
        "BATCH": batch,
        "WINDOW_PARAMETERS": ", ".join(f"__global uchar *window{n}" for n in numbers),
        "WINDOWS": ", ".join(f"window{n}" for n in numbers),
    }
    piece = min(slot, round_up(ceil_div(exchange.longest * size, channels), group * VECTOR)) // size
    args: Arguments = {
        "source": Tensor(0),
        "target": Tensor(1),
        **{f"window{n}": Workspace(2 + n) for n in numbers},
        "send_start": tuple(r.start for r in exchange.send),
        "send_size": tuple(r.size for r in exchange.send),
        "receive_start": tuple(r.start for r in exchange.receive),
        "receive_size": tuple(r.size for r in exchange.receive),
        "result_start": exchange.result_start,
        "longest": exchange.longest,
        "limit": int(seconds * 1e9),
        "me": me,
        "piece": piece,
        "fatal": int(fatal),
        "unused": 0,
    }
    groups = min(channels, ceil_div(exchange.longest, piece))
    return runtime.launch("collective/exchange", definitions, args, (groups * group,), (group,))


# Not in the table of lowerings: communicators, which own the windows, launch it.
LOWERINGS = {"collective": build}
