"""Attention of a few queries, as in generating text: bound by reading keys and values, which are read once and in place."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.lowering.attention.arguments import Attention
from polyhal.backends.opencl.lowering.gemm.arguments import uints
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_MOST_ROWS = 4
_MAX_FEATURES = 256
_MOST_PARTS = 64
_JOIN_GROUP = 64
_PART_FACTS = 2


@dataclass(frozen=True, slots=True)
class Decoding:
    """A team of `lanes` takes `each` keys at a time; `teams` of them make a group, which has at least `least` keys."""

    width: int
    lanes: int
    teams: int
    each: int
    least: int
    per_unit: int
    """Groups per compute unit that keep its memory busy."""


def refusal(call: Attention) -> str:
    """Why the kernel cannot take a call; empty when it can."""
    s = call.shape
    if s.t > _MOST_ROWS:
        return f"{s.t} queries; the kernel takes {_MOST_ROWS}"
    if max(s.d, s.e) > _MAX_FEATURES:
        return f"heads of {max(s.d, s.e)} features; the kernel takes {_MAX_FEATURES}"
    if any(spec.strides[-1] != 1 for spec in call.specs):
        return "features of a head do not lie next to each other"
    if not call.results[0].is_contiguous:
        return "the result is not to be contiguous"
    return ""


def choose(runtime: Runtime, call: Attention) -> Decoding:
    """What suits the device and the lengths of keys and values."""
    s = call.shape
    width = runtime.features.vector_width // (call.itemsize // 4)
    while width > 1 and (s.d % width or s.e % width):
        width //= 2
    if runtime.features.cpu:
        return Decoding(width, lanes=1, teams=1, each=8, least=512, per_unit=1)
    lanes = 1
    while lanes < 16 and lanes * width < max(s.d, s.e):
        lanes *= 2
    teams = power_of_two_at_most(min(128, runtime.features.max_group_size)) // lanes
    return Decoding(width, lanes, teams, each=8 if s.t == 1 else 4, least=256, per_unit=8)


def forward(runtime: Runtime, call: Attention, chosen: Decoding | None = None) -> Launch | Declined:
    """The result and the logsumexp, in two launches where heads are shared out."""
    reason = refusal(call)
    if reason:
        return Declined(reason)
    s = call.shape
    how = chosen or choose(runtime, call)
    wanted = ceil_div(how.per_unit * runtime.features.compute_units, s.count)
    parts = max(1, min(wanted, s.s // how.least, _MOST_PARTS))
    keys_each = round_up(ceil_div(s.s, parts), how.each * how.teams)
    parts = ceil_div(s.s, keys_each)
    out, lse, temporary = Tensor(call.out), Tensor(call.out + 1), Workspace(call.temporary)
    definitions = call.definitions(
        WIDTH=how.width, ALIGNED=call.whole(how.width), LANES=how.lanes, TEAMS=how.teams, EACH=how.each,
        ROWS=1 if s.t == 1 else _MOST_ROWS,
        KEY_VECTORS=ceil_div(s.d, how.lanes * how.width), VALUE_VECTORS=ceil_div(s.e, how.lanes * how.width),
        PARTS=parts > 1, TENSOR_CORES=runtime.features.tensor_cores and call.real == "float",
    )  # fmt: skip
    results = [temporary] if parts > 1 else [out, lse]
    parameters = [*call.operands(), *results, *uints(keys_each), *call.numbers()]
    group = how.lanes * how.teams
    items = (parts * group, s.count)
    attend = runtime.launch("attention", "attention/decode", definitions, parameters, items, (group, 1))
    if parts == 1:
        return attend
    rows = s.count * s.t
    join = runtime.launch(
        "attention_join", "attention/decode_reduce", {"OUT_DTYPE": call.out_dtype.name, "REAL": call.real},
        [temporary, out, lse, *uints(rows, s.e, parts)], (s.e, rows), (1 if runtime.features.cpu else _JOIN_GROUP, 1),
    )  # fmt: skip
    return LaunchSequence("attention", (attend, join), (rows * parts * (s.e + _PART_FACTS) * call.itemsize,))
