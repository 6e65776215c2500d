"""Attention on any GPU: tiles of operands in local memory, a register tile of scores per work-item.

Where GPUs need several groups in their local memory and heads are large, gradients are made of slices of heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace, after_zeros
from polyhal.backends.opencl import occupancy
from polyhal.backends.opencl.language import ATOMICS, FLOAT_ATOMICS
from polyhal.backends.opencl.lowering.attention.call import Args, AttentionCall, Definitions, padded_head_size
from polyhal.backends.opencl.lowering.attention.delta import delta, statistics_bytes
from polyhal.backends.opencl.lowering.pointwise import copy
from polyhal.backends.opencl.occupancy import Usage
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_MAX_HEAD_SIZE = 256
"""Largest head that the kernels are compiled for."""
_PAD = 4
"""Elements between rows in local memory, against bank conflicts (PITCH of attention/local_tile.h)."""


@dataclass(frozen=True, slots=True)
class LocalTile:
    """A group makes `rows` by `columns` scores, a work-item `item_rows` by `item_columns` of them."""

    rows: int
    columns: int
    item_rows: int
    item_columns: int
    slice: int = 0
    """Features of a head in local memory at once; 0: all. Only gradients are made of slices."""

    @property
    def lanes_x(self) -> int:
        return self.columns // self.item_columns

    @property
    def lanes_y(self) -> int:
        return self.rows // self.item_rows

    @property
    def group(self) -> int:
        """Work-items."""
        return self.lanes_y * self.lanes_x

    def registers(self, features: int) -> int:
        """Reals that a work-item holds if it accumulates rows of so many features."""
        return self.item_rows * (self.item_columns + round_up(ceil_div(features, self.lanes_x), 4))

    def all_registers(self, features: int, accumulated: int) -> int:
        """Predict the registers that a work-item takes in float32, with so many accumulated features per row of results."""
        if self.item_rows == 1:
            return self.registers(accumulated) + 4 * (self.item_columns + 1) + _OTHER_REGISTERS_OF_ROW
        operands = 4 * max(self.item_columns + 1, self.item_rows + 4)
        copied = ceil_div(self.columns * (self.slice or features), self.group)
        return self.registers(accumulated) + operands + copied + _OTHER_REGISTERS


FORWARD = (
    LocalTile(128, 64, 8, 8), LocalTile(64, 64, 4, 8), LocalTile(64, 32, 4, 4), LocalTile(32, 32, 4, 4),
    LocalTile(32, 16, 4, 2), LocalTile(16, 16, 2, 2),
)  # fmt: skip
"""By preference: the first one that fits into the device's local memory and registers is used."""
BACKWARD = (
    LocalTile(64, 64, 8, 4), LocalTile(64, 32, 4, 4), LocalTile(32, 32, 4, 4), LocalTile(32, 16, 2, 4),
    LocalTile(16, 16, 2, 2),
)  # fmt: skip
"""The same for gradients, which hold two operands of the rows and of the columns."""
FORWARD_IN_WAVES = (
    *FORWARD[:2], LocalTile(64, 32, 2, 4), LocalTile(64, 32, 4, 4), LocalTile(32, 32, 4, 4), LocalTile(32, 32, 2, 2),
    LocalTile(32, 16, 4, 2), LocalTile(32, 16, 2, 1), LocalTile(16, 32, 1, 2), LocalTile(16, 16, 2, 2), LocalTile(16, 16, 1, 1),
)  # fmt: skip
"""The same for devices whose units need several waves each to hide latency: tiles that spread local memory over more items."""
BACKWARD_IN_WAVES = (
    LocalTile(64, 64, 8, 4), LocalTile(64, 32, 4, 4), LocalTile(64, 32, 2, 4), LocalTile(32, 32, 4, 4), LocalTile(32, 32, 2, 2),
    LocalTile(32, 16, 2, 4), LocalTile(32, 16, 2, 1), LocalTile(32, 16, 1, 2), LocalTile(16, 16, 2, 2), LocalTile(16, 16, 1, 1),
    LocalTile(32, 32, 2, 2, slice=64), LocalTile(32, 16, 2, 1, slice=64), LocalTile(16, 32, 1, 1, slice=128),
    LocalTile(16, 16, 1, 1, slice=64),
)  # fmt: skip
"""The same for gradients; slices of heads are for heads of which more leave no room."""
_OTHER_REGISTERS = 40
"""Registers that hold no scores, accumulators, operands or elements on their way to local memory; fitted to AMD's compiler."""
_OTHER_REGISTERS_OF_ROW = 30
"""The same of tiles of one row per work-item, fitted to a compiler that makes eight lanes of sixteen with over 56 registers."""
_NEAR = 1 << 22
"""Strides of rows and features below which offsets in a tile are numbers of 32 bits."""
_REGISTERS = 136
"""Reals of accumulators and scores that a work-item may hold without spilling."""


def forward_elements(tile: LocalTile, features: int, values: int) -> int:
    """Return the numbers that a group of attention/tiles.cl has in local memory."""
    pitch = features + _PAD
    return (tile.rows + tile.columns) * pitch + tile.columns * (values + _PAD) + tile.rows * (tile.columns + _PAD)


def backward_elements(tile: LocalTile, features: int, values: int) -> int:
    """Return the numbers that a group of attention/tiles_grad.cl or sliced_tiles_grad.cl has in local memory."""
    if tile.slice:
        return tile.rows * (max(tile.slice, tile.columns) + _PAD) + tile.columns * (tile.slice + _PAD)
    pitches = features + values + 2 * _PAD
    return (tile.rows + tile.columns) * pitches + tile.rows * (tile.columns + _PAD)


def _choose(
    runtime: Runtime,
    call: AttentionCall,
    candidates: Sequence[LocalTile],
    elements: Callable[[LocalTile, int, int], int],
    accumulated: int,
) -> LocalTile | Declined:
    """The first candidate that fits, or that leaves as many waves as the architecture needs.

    `accumulated` is the number of features per row of the results.
    """
    if call.head_size > _MAX_HEAD_SIZE:
        return Declined(f"heads of {call.head_size} features; the kernel takes {_MAX_HEAD_SIZE}")
    facts = runtime.features
    features, values = padded_head_size(call.shape.d), padded_head_size(call.shape.e)

    near = all(abs(stride) < _NEAR for spec in call.specs for stride in spec.strides[-2:])

    def usage(tile: LocalTile) -> Usage:
        registers = tile.all_registers(max(features, values), accumulated) * call.itemsize // 4
        return Usage(registers, tile.group, elements(tile, features, values) * call.itemsize)

    def fits(tile: LocalTile) -> bool:
        if tile.slice and not (features % tile.slice == values % tile.slice == 0 and near):
            return False
        return usage(tile).local_memory <= facts.static_local_memory and tile.group <= facts.max_group_size

    fitting = [tile for tile in candidates if fits(tile)]
    if not fitting:
        return Declined("the device has too little local memory")
    if facts.architecture is not None:
        return occupancy.choose(facts.architecture, facts.static_local_memory, fitting, usage)
    unspilled = (tile for tile in fitting if tile.registers(accumulated) * call.itemsize // 4 <= _REGISTERS)
    return next(unspilled, fitting[-1])


def _definitions(runtime: Runtime, call: AttentionCall, tile: LocalTile) -> Definitions:
    return call.definitions(
        FEATURES=padded_head_size(call.shape.d), VALUES=padded_head_size(call.shape.e), ALIGNED_ROWS=call.aligned(),
        ROWS=tile.rows, COLUMNS=tile.columns, ITEM_ROWS=tile.item_rows, ITEM_COLUMNS=tile.item_columns,
        STORED_AS_REAL=call.dtype.itemsize == call.itemsize,
        TENSOR_CORES=runtime.features.tensor_cores and call.real == "float",
    )  # fmt: skip


def forward(
    runtime: Runtime, call: AttentionCall, candidates: Sequence[LocalTile] | None = None
) -> Launch | Declined:
    """The output and the logsumexp in one launch."""
    candidates = candidates or (FORWARD if runtime.features.architecture is None else FORWARD_IN_WAVES)
    tile = _choose(runtime, call, candidates, forward_elements, padded_head_size(call.shape.e))
    if isinstance(tile, Declined):
        return tile
    args = {**call.operands(), **call.outputs(), **call.geometry()}
    items = (ceil_div(call.shape.t, tile.rows) * tile.group, call.shape.count)
    return runtime.launch(
        "attention/tiles", _definitions(runtime, call, tile), args, items, (tile.group, 1)
    )  # fmt: skip


def _grad_args(call: AttentionCall, statistics: Workspace, results: Sequence[str]) -> Args:
    gradients = {name: call.gradient(name) for name in results}
    return {**call.operands(), "statistics": statistics, **gradients, **call.geometry()}


def _fused(
    runtime: Runtime, call: AttentionCall, statistics: Workspace, candidates: Sequence[LocalTile]
) -> Launch | None:
    """All gradients in one launch that adds dq atomically; None if no tile suits it."""
    features, values = padded_head_size(call.shape.d), padded_head_size(call.shape.e)
    suited = [tile for tile in candidates if not tile.slice and tile.columns % (4 * tile.lanes_y) == 0]
    tile = _choose(runtime, call, suited, backward_elements, features + values) if suited else None
    if tile is None or isinstance(tile, Declined):
        return None
    definitions = _definitions(runtime, call, tile)
    definitions |= {"ROWS_ARE_KEYS": True, "FUSE_DQ": True, FLOAT_ATOMICS: ATOMICS[runtime.features.float_atomics]}
    items = (ceil_div(call.shape.s, tile.rows) * tile.group, call.shape.count)
    launch = runtime.launch(
        "attention/tiles_grad", definitions,
        _grad_args(call, statistics, ("dq", "dk", "dv")), items, (tile.group, 1),
    )  # fmt: skip
    return after_zeros(copy.fill(runtime, call.results[1]), launch, call.out)


def backward(
    runtime: Runtime, call: AttentionCall, candidates: Sequence[LocalTile] | None = None, fuse_dq: bool = False
) -> Launch | Declined:
    """The gradients of the queries in one launch, of the keys and values in another.

    With `fuse_dq` all in one launch with five products instead of seven. It adds dq atomically, in no fixed order: float32
    only.
    """
    shape = call.shape
    candidates = candidates or (BACKWARD if runtime.features.architecture is None else BACKWARD_IN_WAVES)
    features, values = padded_head_size(shape.d), padded_head_size(shape.e)
    statistics = Workspace(call.temporary)
    workspace = (statistics_bytes(call),)
    steps: list[Launch] = [delta(runtime, call, statistics)]
    fused = _fused(runtime, call, statistics, candidates) if fuse_dq else None
    if fused is not None:
        return LaunchSequence([*steps, fused], workspace)
    for rows_are_keys, length, accumulated, results in (
        (False, shape.t, features, ("dq",)), (True, shape.s, features + values, ("dk", "dv"))
    ):  # fmt: skip
        tile = _choose(runtime, call, candidates, backward_elements, accumulated)
        if isinstance(tile, Declined):
            return tile
        definitions = _definitions(runtime, call, tile) | {"ROWS_ARE_KEYS": rows_are_keys}
        if tile.slice:
            definitions["SLICE"] = tile.slice
        items = (ceil_div(length, tile.rows) * tile.group, shape.count)
        args = _grad_args(call, statistics, results)
        kernel = "attention/sliced_tiles_grad" if tile.slice else "attention/tiles_grad"
        steps.append(runtime.launch(kernel, definitions, args, items, (tile.group, 1)))
    return LaunchSequence(steps, workspace)
