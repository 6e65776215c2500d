"""Attention on any GPU: tiles of operands in local memory, a register tile of scores per work-item.

On GPUs that need several resident groups per unit, gradients of large heads are computed in slices of features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace, after_zeros
from polyhal.backends.opencl_c import occupancy
from polyhal.backends.opencl_c.language import ATOMICS, FLOAT_ATOMICS
from polyhal.backends.opencl_c.lowering.attention.call import Args, AttentionCall, Definitions, padded_head_size
from polyhal.backends.opencl_c.lowering.attention.delta import delta, statistics_bytes
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.occupancy import Usage
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_MAX_HEAD_SIZE = 256
"""Largest head that the kernels are compiled for."""
_PAD = 4
"""Elements between rows in local memory, against bank conflicts (PITCH of attention/local_tile.h)."""


@dataclass(frozen=True, slots=True)
class LocalTile:
    """A group computes `rows` by `columns` scores, a work-item `item_rows` by `item_columns` of them."""

    rows: int
    columns: int
    item_rows: int
    item_columns: int
    slice: int = 0
    """Features of a head in local memory at once; 0 for all. Only gradients are sliced."""

    @property
    def lanes_x(self) -> int:
        return self.columns // self.item_columns

    @property
    def lanes_y(self) -> int:
        return self.rows // self.item_rows

    @property
    def group(self) -> int:
        """Work-items per group."""
        return self.lanes_y * self.lanes_x

    def registers(self, features: int) -> int:
        """Return the reals that a work-item holds when it accumulates rows of `features` features."""
        return self.item_rows * (self.item_columns + round_up(ceil_div(features, self.lanes_x), 4))

    def all_registers(self, features: int, accumulated: int) -> int:
        """Predict the registers of a work-item in float32, with `accumulated` features per row of results."""
        if self.item_rows == 1:
            return self.registers(accumulated) + 4 * (self.item_columns + 1) + _OTHER_REGISTERS_OF_ROW
        operands = 4 * max(self.item_columns + 1, self.item_rows + 4)
        copied = ceil_div(self.columns * (self.slice or features), self.group)
        return self.registers(accumulated) + operands + copied + _OTHER_REGISTERS


FORWARD = (
    LocalTile(128, 64, 8, 8),
    LocalTile(64, 64, 4, 8),
    LocalTile(64, 32, 4, 4),
    LocalTile(32, 32, 4, 4),
    LocalTile(32, 16, 4, 2),
    LocalTile(16, 16, 2, 2),
)
"""Candidates in order of preference: the first one that fits into the device's local memory and registers is used."""
BACKWARD = (
    LocalTile(64, 64, 8, 4),
    LocalTile(64, 32, 4, 4),
    LocalTile(32, 32, 4, 4),
    LocalTile(32, 16, 2, 4),
    LocalTile(16, 16, 2, 2),
)
"""Candidates for gradients, which hold two operands each for rows and columns."""
FORWARD_IN_WAVES = (
    *FORWARD[:2],
    LocalTile(64, 32, 2, 4),
    LocalTile(64, 32, 4, 4),
    LocalTile(32, 32, 4, 4),
    LocalTile(32, 32, 2, 2),
    LocalTile(32, 16, 4, 2),
    LocalTile(32, 16, 2, 1),
    LocalTile(16, 32, 1, 2),
    LocalTile(16, 16, 2, 2),
    LocalTile(16, 16, 1, 1),
)
"""Candidates for devices whose SIMD units need several waves to hide latency: less local memory per work-item."""
BACKWARD_IN_WAVES = (
    LocalTile(64, 64, 8, 4), LocalTile(64, 32, 4, 4), LocalTile(64, 32, 2, 4), LocalTile(32, 32, 4, 4), LocalTile(32, 32, 2, 2),
    LocalTile(32, 16, 2, 4), LocalTile(32, 16, 2, 1), LocalTile(32, 16, 1, 2), LocalTile(16, 16, 2, 2), LocalTile(16, 16, 1, 1),
    LocalTile(32, 32, 2, 2, slice=64), LocalTile(32, 16, 2, 1, slice=64), LocalTile(16, 32, 1, 1, slice=128),
    LocalTile(16, 16, 1, 1, slice=64),
)  # fmt: skip
"""Candidates for gradients on such devices; sliced tiles are for heads that do not fit as a whole."""
_OTHER_REGISTERS = 40
"""Registers beyond scores, accumulators, operands and elements in flight to local memory; fitted to AMD's compiler."""
_OTHER_REGISTERS_OF_ROW = 30
"""Other registers of tiles with one row per work-item, fitted to a compiler that halves its 16 lanes above 56 registers."""
_NEAR = 1 << 22
"""Exclusive maximum of row and feature strides for which offsets in a tile are 32-bit numbers."""
_REGISTERS = 136
"""Reals of accumulators and scores that a work-item may hold without spilling."""


def forward_elements(tile: LocalTile, features: int, values: int) -> int:
    """Return the count of elements that a group of attention/tiles.cl has in local memory."""
    pitch = features + _PAD
    return (tile.rows + tile.columns) * pitch + tile.columns * (values + _PAD) + tile.rows * (tile.columns + _PAD)


def backward_elements(tile: LocalTile, features: int, values: int) -> int:
    """Return the count of elements that a group of attention/tiles_grad.cl or sliced_tiles_grad.cl has in local memory."""
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
    """Return the first candidate that fits and leaves as many waves as the architecture needs.

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
        FEATURES=padded_head_size(call.shape.d),
        VALUES=padded_head_size(call.shape.e),
        ALIGNED_ROWS=call.aligned(),
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        ITEM_ROWS=tile.item_rows,
        ITEM_COLUMNS=tile.item_columns,
        STORED_AS_REAL=call.dtype.itemsize == call.itemsize,
        TENSOR_CORES=runtime.features.tensor_cores and call.real == "float",
    )


def forward(runtime: Runtime, call: AttentionCall, candidates: Sequence[LocalTile] | None = None) -> Launch | Declined:
    """Build one launch for the output and the logsumexp."""
    candidates = candidates or (FORWARD if runtime.features.architecture is None else FORWARD_IN_WAVES)
    tile = _choose(runtime, call, candidates, forward_elements, padded_head_size(call.shape.e))
    if isinstance(tile, Declined):
        return tile
    args = {**call.operands(), **call.outputs(), **call.geometry()}
    items = (ceil_div(call.shape.t, tile.rows) * tile.group, call.shape.count)
    return runtime.launch("attention/tiles", _definitions(runtime, call, tile), args, items, (tile.group, 1))


def _grad_args(call: AttentionCall, statistics: Workspace, results: Sequence[str]) -> Args:
    gradients = {name: call.gradient(name) for name in results}
    return {**call.operands(), "statistics": statistics, **gradients, **call.geometry()}


def _fused(
    runtime: Runtime, call: AttentionCall, statistics: Workspace, candidates: Sequence[LocalTile]
) -> Launch | None:
    """Build one launch for all gradients, which adds dq atomically; None if no tile fits."""
    features, values = padded_head_size(call.shape.d), padded_head_size(call.shape.e)
    suited = [tile for tile in candidates if not tile.slice and tile.columns % (4 * tile.lanes_y) == 0]
    tile = _choose(runtime, call, suited, backward_elements, features + values) if suited else None
    if tile is None or isinstance(tile, Declined):
        return None
    definitions = _definitions(runtime, call, tile)
    definitions |= {"ROWS_ARE_KEYS": True, "FUSE_DQ": True, FLOAT_ATOMICS: ATOMICS[runtime.features.float_atomics]}
    items = (ceil_div(call.shape.s, tile.rows) * tile.group, call.shape.count)
    launch = runtime.launch(
        "attention/tiles_grad",
        definitions,
        _grad_args(call, statistics, ("dq", "dk", "dv")),
        items,
        (tile.group, 1),
    )
    return after_zeros(copy.fill(runtime, call.results[1]), launch, call.out)


def backward(
    runtime: Runtime, call: AttentionCall, candidates: Sequence[LocalTile] | None = None, fuse_dq: bool = False
) -> Launch | Declined:
    """Build a launch for the gradient of queries and one for the gradients of keys and values.

    With `fuse_dq`, build one launch for all, with five products instead of seven. It adds dq atomically, in no fixed
    order: float32 only.
    """
    shape = call.shape
    candidates = candidates or (BACKWARD if runtime.features.architecture is None else BACKWARD_IN_WAVES)
    features, values = padded_head_size(shape.d), padded_head_size(shape.e)
    statistics = Workspace(call.first_workspace)
    workspace = (statistics_bytes(call),)
    steps: list[Launch] = [delta(runtime, call, statistics)]
    fused = _fused(runtime, call, statistics, candidates) if fuse_dq else None
    if fused is not None:
        return LaunchSequence([*steps, fused], workspace)
    for rows_are_keys, length, accumulated, results in (
        (False, shape.t, features, ("dq",)),
        (True, shape.s, features + values, ("dk", "dv")),
    ):
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
