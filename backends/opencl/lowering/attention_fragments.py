"""Attention of 16-bit elements on matrix units: a warp makes 16 or 32 rows of scores, which never leave its registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polyhal.backends.common.geometry import ceil_div, round_up
from polyhal.backends.common.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.lowering.attention_arguments import Attention, Definitions, delta, padded
from polyhal.backends.opencl.ptx import Target
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Declined, Launch

_MAX_FEATURES = 256
_BLOCK = 16
_WARP = 32
_PAD = 8
_VECTOR = 8
_ITEMSIZE = 2
_HOPPER = 90
_PANEL = 64
"""Features of a line of memory as Hopper's units read it."""


@dataclass(frozen=True, slots=True)
class Fragments:
    """A group of `warps` times `tiles` blocks of rows passes over `columns` at a time, `stages` of them in local memory."""

    warps: int
    tiles: int
    columns: int
    stages: int
    held: bool
    """The rows' operands stay in registers."""
    wgmma: bool = False
    """Four warps multiply together, by Hopper's instructions."""
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
            return Target("sm_90a", self.groups)
        return Target(groups=self.groups) if self.groups else None

    def padded(self, features: int) -> int:
        """The compiled bound for a length."""
        return round_up(features, _PANEL) if self.wgmma else padded(features)

    def definitions(self, runtime: Runtime, call: Attention) -> Definitions:
        return call.definitions(
            WARPS=self.warps, TILES=self.tiles, COLUMNS=self.columns, STAGES=self.stages, HELD=self.held,
            WGMMA_UNITS=self.wgmma, FEATURES=self.padded(call.shape.d), VALUES=self.padded(call.shape.e),
            WHOLE=call.whole(_VECTOR), PAIRS=call.shape.d % 2 == 0 and call.shape.e % 2 == 0,
            TENSOR_CORES=runtime.features.tensor_cores,
        )  # fmt: skip


HOPPER = {128: Fragments(warps=4, tiles=1, columns=64, stages=2, held=False, wgmma=True)}
"""Forward, by the most features of a head. Several teams of four warps in a group wait for each other, which is slower."""
FORWARD = {
    64: Fragments(warps=4, tiles=2, columns=64, stages=2, held=True, groups=2),
    128: Fragments(warps=4, tiles=2, columns=64, stages=2, held=False),
    _MAX_FEATURES: Fragments(warps=4, tiles=1, columns=32, stages=1, held=False),
}
BACKWARD = {
    128: Fragments(warps=4, tiles=1, columns=64, stages=1, held=False),
    _MAX_FEATURES: Fragments(warps=4, tiles=1, columns=32, stages=1, held=False),
}
_TOGETHER = 128
"""Up to so many features the sums of keys and of values fit into the registers at the same time."""


def refusal(call: Attention) -> str:
    """Why the matrix units cannot do it; empty when they can."""
    if call.dtype not in (dtypes.float16, dtypes.bfloat16):
        return f"the kernel takes 16-bit floats, not {call.dtype.name}"
    if call.longest > _MAX_FEATURES:
        return f"heads of {call.longest} features; the kernel takes {_MAX_FEATURES}"
    return "" if call.scale > 0 else "the kernel takes scales above 0"


def _choose(runtime: Runtime, call: Attention, table: Mapping[int, Fragments], own: int) -> Fragments | Declined:
    """The first entry for the call's features; `own` of the two operands of rows are in local memory."""
    reason = refusal(call)
    if reason:
        return Declined(reason)
    chosen = next(f for limit, f in table.items() if call.longest <= limit)
    pitches = chosen.padded(call.shape.d) + chosen.padded(call.shape.e) + 2 * _PAD
    memory = (chosen.rows * pitches * own // 2 + chosen.stages * chosen.columns * pitches) * _ITEMSIZE
    if memory > runtime.features.static_local_memory:
        return Declined(f"the kernel needs {memory} bytes of local memory")
    return chosen


def forward(runtime: Runtime, call: Attention, table: Mapping[int, Fragments] | None = None) -> Launch | Declined:
    """The result and the logsumexp in one launch."""
    if table is None:
        hopper = runtime.features.compute_capability == _HOPPER
        table = {**HOPPER, _MAX_FEATURES: FORWARD[_MAX_FEATURES]} if hopper else FORWARD
    chosen = _choose(runtime, call, table, 1)
    if isinstance(chosen, Declined):
        return chosen
    parameters = [*call.operands(), Tensor(call.out), Tensor(call.out + 1), *call.numbers()]
    items = (ceil_div(call.shape.t, chosen.rows) * chosen.group, call.shape.count)
    return runtime.launch(
        "attention", "attention_fragments", chosen.definitions(runtime, call), parameters, items, (chosen.group, 1),
        target=chosen.target if runtime.features.tensor_cores else None,
    )  # fmt: skip


def backward(runtime: Runtime, call: Attention, table: Mapping[int, Fragments] = BACKWARD) -> Launch | Declined:
    """The gradients of the queries in one launch, of the keys and values in another, or one each."""
    chosen = _choose(runtime, call, table, 2)
    if isinstance(chosen, Declined):
        return chosen
    target = Workspace(call.temporary)
    steps: list[Launch] = [delta(runtime, call, target)]
    dq, dk, dv = call.out, call.out + 1, call.out + 2
    passes: Sequence[tuple[int, ...]] = (
        [(dq,), (dk, dv)] if padded(call.longest) <= _TOGETHER else [(dq,), (dk,), (dv,)]
    )
    for results in passes:
        keys = dq not in results
        parameters = [*call.operands(), Tensor(6), target, *(Tensor(i) for i in results), *call.numbers()]
        definitions = chosen.definitions(runtime, call)
        definitions |= {"KEYS": keys, "FIRST": not keys or dk in results, "SECOND": dv in results}
        items = (ceil_div(call.shape.s if keys else call.shape.t, chosen.rows) * chosen.group, call.shape.count)
        name = "attention_grad.keys" if keys else "attention_grad.queries"
        steps.append(
            runtime.launch(name, "attention_fragments_grad", definitions, parameters, items, (chosen.group, 1))
        )
    return LaunchSequence("attention_grad", steps, (call.shape.count * call.shape.t * call.itemsize,))
