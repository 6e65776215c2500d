"""Attention on matrix units: a warp makes 16 or 32 rows of scores, which never leave its registers.

Half precision is multiplied as it is. Float32 at precision `high` is split into three bfloat16 numbers before, at `medium` it
is rounded to one. Where it is split, what is infinite gives NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.lowering.attention.arguments import Attention, Definitions, delta, padded
from polyhal.backends.opencl.lowering.attention.bf16_split import Staged, stage
from polyhal.backends.opencl.ptx import EXTENDED_HOPPER, HOPPER, Target
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Declined, Launch

_BLOCK = 16
_WARP = 32
_PAD = 8
_VECTOR = 8
_ITEMSIZE = 2
_HALVES = (dtypes.float16, dtypes.bfloat16)
_PANEL = 64
"""Features of a line of memory as Hopper's units read it."""
_PARTS = {"high": 3, "medium": 1}
_WORTH_COPYING = 1 << 27
"""Multiplications from which on writing float32 operands to memory in parts costs less than it saves."""


@dataclass(frozen=True, slots=True)
class Fragments:
    """A group of `warps` times `tiles` blocks of rows passes over `columns` at a time, `stages` of them in local memory."""

    warps: int
    tiles: int
    columns: int
    stages: int
    held: bool
    """The rows' operands stay in registers; only for one part."""
    wgmma: bool = False
    """Four warps multiply together, by Hopper's instructions."""
    parts: int = 1
    """Bfloat16 numbers of which a float32 number is made."""
    groups: int = 0
    """Groups that are to fit on a compute unit at once; 0: as many as the compiler likes."""

    @property
    def rows(self) -> int:
        return _BLOCK * self.tiles * self.warps

    @property
    def group(self) -> int:
        """Work-items."""
        return _WARP * self.warps

    @property
    def target(self) -> Target | None:
        if self.wgmma:
            return replace(EXTENDED_HOPPER, groups=self.groups)
        return Target(groups=self.groups) if self.groups else None

    def padded(self, features: int) -> int:
        """The compiled bound for a length."""
        return round_up(features, _PANEL) if self.wgmma else padded(features)

    def memory(self, call: Attention) -> int:
        """Bytes of local memory: all operands of the rows, and those of the columns in every stage."""
        pad = 0 if self.wgmma else _PAD
        first, second = self.padded(call.shape.d) + pad, self.padded(call.shape.e) + pad
        rows = first if call.forward else first + second
        return (self.rows * rows + self.stages * self.columns * (first + second)) * self.parts * _ITEMSIZE

    def definitions(self, runtime: Runtime, call: Attention) -> Definitions:
        return call.definitions(
            WARPS=self.warps, TILES=self.tiles, COLUMNS=self.columns, STAGES=self.stages, HELD=self.held,
            WGMMA_UNITS=self.wgmma, PARTS=self.parts, FEATURES=self.padded(call.shape.d), VALUES=self.padded(call.shape.e),
            WHOLE=call.whole(_VECTOR), PAIRS=call.results_whole(2),
            TENSOR_CORES=runtime.features.tensor_cores,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernels:
    """The shapes for one range of features."""

    forward: Fragments
    queries: Fragments
    """For the gradients of queries."""
    keys: Fragments
    """For those of keys and values."""
    together: bool = True
    """The sums of keys and of values fit into the registers at the same time."""

    def memory(self, call: Attention) -> int:
        """Bytes of local memory that the largest of them needs."""
        used = [self.forward] if call.forward else [self.queries, self.keys]
        return max(f.memory(call) for f in used)


_warps = partial(Fragments, warps=4, held=False)
_teams = partial(Fragments, warps=4, tiles=1, columns=64, held=False, wgmma=True)
# By the most features of a head. Several teams of four warps in a group wait for each other, which is slower.
TEAMS = {
    64: Kernels(_teams(stages=2), _teams(stages=2), _teams(stages=2, groups=3)),
    128: Kernels(_teams(stages=2), _teams(stages=2), _teams(stages=2)),
}
SPLIT_TEAMS = {
    64: Kernels(_teams(stages=1, parts=3, groups=3), _teams(stages=1, parts=3), _teams(stages=1, parts=3)),
    128: Kernels(
        _teams(warps=8, stages=1, parts=3), _teams(stages=1, parts=3), _teams(stages=1, parts=3), together=False
    ),
}
WARPS = {
    64: Kernels(
        Fragments(warps=4, tiles=2, columns=64, stages=2, held=True, groups=2), _warps(tiles=1, columns=64, stages=1),
        _warps(tiles=1, columns=64, stages=1),
    ),
    128: Kernels(
        _warps(tiles=2, columns=64, stages=2), _warps(tiles=1, columns=64, stages=1),
        _warps(tiles=1, columns=64, stages=1),
    ),
    256: Kernels(
        _warps(tiles=1, columns=32, stages=1), _warps(tiles=1, columns=32, stages=1),
        _warps(tiles=1, columns=32, stages=1), together=False,
    ),
}  # fmt: skip
SPLIT_WARPS = {
    64: Kernels(
        _warps(tiles=1, columns=32, stages=2, parts=3), _warps(tiles=1, columns=32, stages=1, parts=3),
        _warps(tiles=1, columns=32, stages=1, parts=3),
    )
}  # fmt: skip


def choose(runtime: Runtime, call: Attention) -> Kernels | Declined:
    """The kernels for a call, or why the matrix units cannot do it."""
    parts = 1 if call.dtype in _HALVES else _PARTS.get(call.precision, 0) if call.dtype is dtypes.float32 else 0
    if not parts:
        return Declined(f"the units do not multiply {call.dtype.name} at precision {call.precision}")
    if call.dtype is dtypes.float32 and call.multiplications < _WORTH_COPYING:
        return Declined("the call is too small to copy its operands")
    if call.scale <= 0:
        return Declined("the kernel takes scales above 0")
    hopper = runtime.features.compute_capability == HOPPER
    tables = ([TEAMS, WARPS] if parts == 1 else [SPLIT_TEAMS, SPLIT_WARPS])[0 if hopper else 1 :]
    for limit, kernels in (entry for table in tables for entry in table.items()):
        if call.longest <= limit and kernels.memory(call) <= runtime.features.static_local_memory:
            return kernels
    return Declined(f"heads of {call.longest} features need too much local memory")


def _staged(runtime: Runtime, call: Attention, chosen: Fragments, place: int) -> Staged:
    return Staged([], call, ()) if call.dtype in _HALVES else stage(runtime, call, chosen.parts, place)


def forward(runtime: Runtime, call: Attention, kernels: Kernels) -> Launch:
    """The result and the logsumexp in one launch, after those that bring the operands into the units' dtype."""
    chosen = kernels.forward
    staged = _staged(runtime, call, chosen, call.temporary)
    call = staged.call
    parameters = [*call.operands(), Tensor(call.out), Tensor(call.out + 1), *call.numbers("out")]
    items = (ceil_div(call.shape.t, chosen.rows) * chosen.group, call.shape.count)
    launch = runtime.launch(
        "attention", "attention/mma", chosen.definitions(runtime, call), parameters, items, (chosen.group, 1),
        target=chosen.target if runtime.features.tensor_cores else None,
    )  # fmt: skip
    return LaunchSequence("attention", [*staged.launches, launch], staged.workspace) if staged.launches else launch


def backward(runtime: Runtime, call: Attention, kernels: Kernels) -> Launch:
    """The gradients of the queries in one launch, of the keys and values in another, or one each."""
    target = Workspace(call.temporary)
    statistics = 2 * call.shape.count * call.shape.t * call.itemsize
    steps: list[Launch] = [delta(runtime, call, target, statistics=True)]
    staged = _staged(runtime, call, kernels.keys, call.temporary + 1)
    call = staged.call
    steps += staged.launches
    passes: Sequence[tuple[str, ...]] = [("dq",), ("dk", "dv")] if kernels.together else [("dq",), ("dk",), ("dv",)]
    for results in passes:
        keys = "dq" not in results
        chosen = kernels.keys if keys else kernels.queries
        parameters = [*call.operands(), target, *map(call.gradient, results), *call.numbers(*results)]
        definitions = chosen.definitions(runtime, call)
        definitions |= {"KEYS": keys, "FIRST": not keys or "dk" in results, "SECOND": "dv" in results}
        items = (ceil_div(call.shape.s if keys else call.shape.t, chosen.rows) * chosen.group, call.shape.count)
        name = "attention_grad.keys" if keys else "attention_grad.queries"
        launch = runtime.launch(
            name, "attention/mma_grad", definitions, parameters, items, (chosen.group, 1),
            target=chosen.target if runtime.features.tensor_cores else None,
        )  # fmt: skip
        steps.append(launch)
    return LaunchSequence("attention_grad", steps, (statistics, *staged.workspace))
