"""Attention on matrix units: a warp computes 16 or 32 rows of scores, which never leave its registers.

16-bit elements are multiplied directly. Float32 is split into three bfloat16 terms (bf16x3) at precision `high`, and
rounded to one at `medium`. Splitting turns infinite elements into NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.opencl_c.lowering.attention import split_keys
from polyhal.backends.opencl_c.lowering.attention.bf16_split import SplitCall, split_operands
from polyhal.backends.opencl_c.lowering.attention.call import Args, AttentionCall, Definitions, padded_head_size
from polyhal.backends.opencl_c.lowering.attention.delta import delta, statistics_bytes
from polyhal.backends.opencl_c.lowering.attention.mask_bits import packed
from polyhal.backends.opencl_c.ptx import EXTENDED_HOPPER, HOPPER, Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Declined, Launch

_MMA_ROWS = 16
"""Rows of a tile of `mma.sync`."""
_WARP = 32
"""Work-items of a warp."""
_PAD = 8
"""Elements between rows in local memory, against bank conflicts (PITCH of attention/mma_tile.h)."""
_VECTOR = 8
"""Elements of the widest asynchronous copy, 16 bytes."""
_ITEMSIZE = 2
"""Bytes of an element that the units multiply."""
_HALVES = (dtypes.float16, dtypes.bfloat16)
_PANEL = 64
"""Features of a line of 128 bytes, the unit of wgmma's layout in local memory."""
_WGMMA_SIZES = (64, 80, 96, 112, 128, 160, 192, 256)
"""Head sizes that kernels with wgmma and one term are compiled for."""
_BF16_TERMS = {"high": 3, "medium": 1}
"""Bfloat16 terms per float32 element, by precision."""
_MIN_SPLIT_WORK = 1 << 27
"""Minimum multiply-adds for which tensor cores save more time than splitting float32 operands costs."""


@dataclass(frozen=True, slots=True)
class MmaTile:
    """A group of `warps` warps, each with `row_tiles` tiles of rows, loops over blocks of `columns`."""

    warps: int
    row_tiles: int
    columns: int
    stages: int
    """Column blocks in local memory at once (software pipeline)."""
    rows_in_registers: bool
    """True if the fragments of row operands stay in registers; only possible with one term."""
    wgmma: bool = False
    """True if warpgroups multiply, using Hopper's wgmma."""
    terms: int = 1
    """Bfloat16 terms per element."""
    groups: int = 0
    """Groups that must fit on a compute unit at the same time; 0 for the compiler's choice."""
    split_to: int = 1
    """Groups per compute unit for which the keys of a forward pass are split."""
    min_keys: int = 512
    """Minimum number of keys per group of split keys."""

    @property
    def rows(self) -> int:
        return _MMA_ROWS * self.row_tiles * self.warps

    @property
    def group(self) -> int:
        """Work-items per group."""
        return _WARP * self.warps

    @property
    def target(self) -> Target | None:
        if self.wgmma:
            return replace(EXTENDED_HOPPER, groups=self.groups)
        return Target(groups=self.groups) if self.groups else None

    def padded(self, features: int) -> int:
        """Return the head size to compile for."""
        if self.wgmma and self.terms == 1:
            return next(n for n in _WGMMA_SIZES if features <= n)
        return round_up(features, _PANEL) if self.wgmma else padded_head_size(features)

    def local_memory(self, call: AttentionCall) -> int:
        """Return the bytes of all row operands, and of the column operands in every stage."""
        qk, v = (
            round_up(n, _PANEL) if self.wgmma else n + _PAD
            for n in (self.padded(call.shape.d), self.padded(call.shape.e))
        )
        row = qk if call.forward else qk + v
        return (self.rows * row + self.stages * self.columns * (qk + v)) * self.terms * _ITEMSIZE

    def definitions(self, runtime: Runtime, call: AttentionCall) -> Definitions:
        return call.definitions(
            WARPS=self.warps,
            ROW_TILES=self.row_tiles,
            COLUMNS=self.columns,
            STAGES=self.stages,
            ROWS_IN_REGISTERS=self.rows_in_registers,
            USE_WGMMA=self.wgmma,
            BF16_TERMS=self.terms,
            FEATURES=self.padded(call.shape.d),
            VALUES=self.padded(call.shape.e),
            ALIGNED_ROWS=call.aligned(_VECTOR),
            PAIRS=call.results_aligned(2),
            TENSOR_CORES=runtime.features.tensor_cores,
        )


@dataclass(frozen=True, slots=True)
class MmaTiles:
    """The tiles for one range of head sizes."""

    forward: MmaTile
    grad_queries: MmaTile
    grad_keys: MmaTile
    """Tile for the gradients of keys and values."""
    fuse_dk_dv: bool = True
    """True if the accumulators of dk and dv fit into registers at the same time."""

    def local_memory(self, call: AttentionCall) -> int:
        """Return the local memory of the kernel that needs most, in bytes."""
        tiles = [self.forward] if call.forward else [self.grad_queries, self.grad_keys]
        return max(tile.local_memory(call) for tile in tiles)


_mma = partial(MmaTile, warps=4, rows_in_registers=False)
# Several warpgroups in one group would wait for each other, which is slower.
_wgmma = partial(MmaTile, warps=4, row_tiles=1, columns=64, rows_in_registers=False, wgmma=True)
WGMMA_TILES = {
    64: MmaTiles(_wgmma(stages=2), _wgmma(stages=2), _wgmma(stages=2, groups=3)),
    128: MmaTiles(_wgmma(stages=2), _wgmma(stages=2), _wgmma(stages=2)),
}
"""Tiles for 16-bit elements on Hopper, by the largest head size."""
WGMMA_BF16X3_TILES = {
    64: MmaTiles(_wgmma(stages=1, terms=3, groups=3), _wgmma(stages=1, terms=3), _wgmma(stages=1, terms=3)),
    128: MmaTiles(
        _wgmma(warps=8, stages=1, terms=3), _wgmma(stages=1, terms=3), _wgmma(stages=1, terms=3), fuse_dk_dv=False
    ),
}
"""Tiles for float32 as three bfloat16 terms on Hopper, by the largest head size."""
MMA_TILES = {
    64: MmaTiles(
        MmaTile(warps=4, row_tiles=2, columns=64, stages=2, rows_in_registers=True, groups=2),
        _mma(row_tiles=1, columns=64, stages=1),
        _mma(row_tiles=1, columns=64, stages=1),
    ),
    128: MmaTiles(
        _mma(row_tiles=2, columns=64, stages=2),
        _mma(row_tiles=1, columns=64, stages=1),
        _mma(row_tiles=1, columns=64, stages=1),
    ),
    256: MmaTiles(
        _mma(row_tiles=1, columns=32, stages=1),
        _mma(row_tiles=1, columns=32, stages=1),
        _mma(row_tiles=1, columns=32, stages=1),
        fuse_dk_dv=False,
    ),
}
"""Tiles for 16-bit elements on Ampere and later."""
MMA_BF16X3_TILES = {
    64: MmaTiles(
        _mma(row_tiles=1, columns=32, stages=2, terms=3),
        _mma(row_tiles=1, columns=32, stages=1, terms=3),
        _mma(row_tiles=1, columns=32, stages=1, terms=3),
    )
}
"""Tiles for float32 as three bfloat16 terms on Ampere and later."""


def choose(runtime: Runtime, call: AttentionCall) -> MmaTiles | Declined:
    """Return the tiles for a call, or the reason why the matrix units do not support it."""
    float32 = call.dtype is dtypes.float32
    terms = 1 if call.dtype in _HALVES else _BF16_TERMS.get(call.precision, 0) if float32 else 0
    if not terms:
        return Declined(f"the matrix units do not multiply {call.dtype.name} at precision {call.precision}")
    if float32 and call.multiply_adds < _MIN_SPLIT_WORK:
        return Declined("the call is too small to split its operands")
    if call.scale <= 0:
        return Declined("the kernel takes scales above 0")
    if call.cache is not None and (float32 or call.cache.softcap or call.specs[0].dtype is not call.dtype):
        return Declined("the kernel takes a cache with queries of its own dtype of 16 bits, and scores without a bound")
    hopper = runtime.features.compute_capability == HOPPER
    tables = [WGMMA_TILES, MMA_TILES] if terms == 1 else [WGMMA_BF16X3_TILES, MMA_BF16X3_TILES]
    for limit, tiles in (entry for table in tables[0 if hopper else 1 :] for entry in table.items()):
        if call.head_size <= limit and tiles.local_memory(call) <= runtime.features.static_local_memory:
            return tiles
    return Declined(f"heads of {call.head_size} features need too much local memory")


def _split(runtime: Runtime, call: AttentionCall, tile: MmaTile, first: int) -> SplitCall:
    """Return the call on operands that the units multiply; 16-bit operands are used in place."""
    return SplitCall([], call, ()) if call.dtype in _HALVES else split_operands(runtime, call, tile.terms, first)


def forward(runtime: Runtime, call: AttentionCall, tile: MmaTile) -> Launch:
    """Build the launches that prepare operands, and one for the output and the logsumexp, or two if keys are split."""
    split = _split(runtime, call, tile, call.first_workspace)
    call = replace(split.call, copies=call.copies + len(split.workspace))
    bits = packed(runtime, call, tile.columns, call.first_workspace)
    call = replace(bits.call, copies=call.copies + len(bits.workspace))
    launch = _whole(runtime, call, tile) if split.launches else _split_or_whole(runtime, call, tile)
    steps = (*split.launches, *bits.launches)
    return LaunchSequence((*steps, launch), (*split.workspace, *bits.workspace, *launch.workspace)) if steps else launch


def _split_or_whole(runtime: Runtime, call: AttentionCall, tile: MmaTile) -> Launch:
    """Build the launch of a call, and split the keys if there are too few query blocks to occupy the device."""
    s = call.shape
    blocks = ceil_div(s.t, tile.rows) * s.count
    split = split_keys.choose(runtime, call, blocks, tile.split_to, tile.min_keys, tile.columns)
    if split.splits == 1:
        return _whole(runtime, call, tile)
    args: Args = {**call.operands(), "partial": Workspace(call.first_workspace), **call.geometry()}
    if call.cache is None:
        args["keys_per_group"] = split.terms
    definitions = tile.definitions(runtime, call) | {"SPLIT": True, "OUT_DTYPE": "float32", "PAIRS": s.e % 2 == 0}
    launch = _launch(runtime, "attention/mma", call, tile, definitions, args, s.t, split.splits)
    return split_keys.combined(runtime, call, launch, split.splits)


def _whole(runtime: Runtime, call: AttentionCall, tile: MmaTile) -> Launch:
    args = {**call.operands(), **call.outputs(), **call.geometry()}
    definitions = tile.definitions(runtime, call)
    return _launch(runtime, "attention/mma", call, tile, definitions, args, call.shape.t)


def backward(runtime: Runtime, call: AttentionCall, tiles: MmaTiles) -> Launch:
    """Build a launch for the gradient of queries and one or two for the gradients of keys and values."""
    statistics = Workspace(call.first_workspace)
    steps: list[Launch] = [delta(runtime, call, statistics)]
    split = _split(runtime, call, tiles.grad_keys, call.first_workspace + 1)
    workspace: tuple[int, ...] = (statistics_bytes(call), *split.workspace)
    steps += split.launches
    at = call.first_workspace + len(workspace)
    by_query = packed(runtime, split.call, tiles.grad_queries.columns, at)
    by_key = packed(runtime, split.call, tiles.grad_keys.columns, at + len(by_query.workspace), rows_are_keys=True)
    workspace += (*by_query.workspace, *by_key.workspace)
    steps += (*by_query.launches, *by_key.launches)
    passes: Sequence[tuple[str, ...]] = [("dq",), ("dk", "dv")] if tiles.fuse_dk_dv else [("dq",), ("dk",), ("dv",)]
    for results in passes:
        rows_are_keys = "dq" not in results
        tile, call = (tiles.grad_keys, by_key.call) if rows_are_keys else (tiles.grad_queries, by_query.call)
        if call.mask is not None:  # its bits need registers
            tile = replace(tile, groups=min(tile.groups, 2))
        gradients = {name: call.gradient(name) for name in results}
        args = {**call.operands(), "statistics": statistics, **gradients, **call.geometry()}
        definitions = tile.definitions(runtime, call) | {
            "ROWS_ARE_KEYS": rows_are_keys,
            "WRITE_QK": not rows_are_keys or "dk" in results,
            "WRITE_V": "dv" in results,
        }
        length = call.shape.s if rows_are_keys else call.shape.t
        steps.append(_launch(runtime, "attention/mma_grad", call, tile, definitions, args, length))
    return LaunchSequence(steps, workspace)


def _launch(
    runtime: Runtime,
    source: str,
    call: AttentionCall,
    tile: MmaTile,
    definitions: Definitions,
    args: Args,
    length: int,
    splits: int = 1,
) -> Launch:
    """Build a launch of one group per block of rows, head and split of the keys, over `length` rows."""
    items = (ceil_div(length, tile.rows) * tile.group, call.shape.count, splits)
    target = tile.target if runtime.features.tensor_cores else None
    return runtime.launch(source, definitions, args, items, (tile.group, 1, 1), target=target)
