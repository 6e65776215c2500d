"""Attention of few queries that share keys, on matrix units: bound by the memory traffic of keys and values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.launching.split_k import split_k
from polyhal.backends.opencl_c.lowering.attention import split_keys
from polyhal.backends.opencl_c.lowering.attention.call import Args, AttentionCall, padded_head_size
from polyhal.backends.opencl_c.lowering.attention.mask_bits import packed
from polyhal.backends.opencl_c.ptx import Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.protocol import Launch

_ROWS = 16
"""Queries of a group, the rows of a tile of `mma.sync`."""
_WARP = 32
"""Work-items of a warp."""
_VECTOR = 8
"""Elements of an asynchronous copy, 16 bytes."""
_PAD = 8
"""Elements between rows in local memory, against bank conflicts (PITCH of attention/mma_tile.h)."""
_ITEMSIZE = 2
"""Bytes of an element."""
_BLOCK = 32
"""Divisor of the keys of a group, a multiple of the keys of every block."""
_MAX_QUERIES = 32
"""Maximum number of queries, in blocks that read the same keys; tiled kernels handle more."""
_MIN_KEYS, _MANY_KEYS = 128, 512
"""Minimum number of keys of a group, and the number for which groups with more warps are faster."""
_CLUSTER, _LARGE_CLUSTER = 8, 16
"""Maximum groups of a cluster on every device with clusters, and of one that the driver has to allow."""
_FILLED, _FILLED_BY_CLUSTERS = 0.75, 0.25
"""Shares of the compute units for which a second launch, which combines parts, costs more time than it saves."""
_GROUPS_OF_ONE_QUERY, _KEYS_OF_ONE_QUERY = 8, 512
"""Groups per compute unit, and keys, from which attention/decode.cl computes single queries without a second launch."""


@dataclass(frozen=True, slots=True)
class FewQueriesTile:
    """A group of `warps`. Each loops over its own blocks of `columns` keys."""

    warps: int
    columns: int
    stages: int = 2
    """Blocks of keys, and of values, of a warp in local memory at once."""
    rows_in_registers: bool = True

    def local_memory(self, call: AttentionCall) -> int:
        """Return the bytes of the queries, of the keys and values of every stage, and of the warps' statistics."""
        qk, v = (padded_head_size(n) + _PAD for n in (call.shape.d, call.shape.e))
        blocks = self.warps * self.stages * self.columns * (qk + v)
        return _ITEMSIZE * (_ROWS * qk + blocks) + 8 * (self.warps + 1) * _ROWS + 4 * self.warps


@dataclass(frozen=True, slots=True)
class KeyDivision:
    """Each of `splits` clusters of `cluster` groups has `keys` keys per group."""

    tile: FewQueriesTile
    cluster: int
    splits: int
    keys: int


_in_memory = FewQueriesTile(2, 16, 3, rows_in_registers=False)
TILES = {
    64: (FewQueriesTile(8, 32), FewQueriesTile(4, 32), FewQueriesTile(2, 32), FewQueriesTile(1, 32)),
    128: (FewQueriesTile(8, 16), FewQueriesTile(4, 16), FewQueriesTile(2, 16), FewQueriesTile(1, 16)),
    256: (replace(_in_memory, warps=4, stages=2), _in_memory, replace(_in_memory, warps=1, stages=2)),
}
"""Tiles by the largest head size: for groups that have a compute unit to themselves, for groups that share one, and smaller
ones for devices with less local memory."""


def choose(runtime: Runtime, call: AttentionCall) -> KeyDivision | None:
    """Return the division of the keys of few queries; None if the call has more queries, or other operands."""
    s, features, units = call.shape, runtime.features, runtime.features.compute_units
    if not features.tensor_cores or call.dtype not in (dtypes.float16, dtypes.bfloat16) or call.scale <= 0:
        return None
    blocks = ceil_div(s.t, _ROWS) * s.count
    if s.t > _MAX_QUERIES or not min(blocks, s.s):
        return None
    whole = blocks >= _GROUPS_OF_ONE_QUERY * units or s.s < _KEYS_OF_ONE_QUERY
    if s.t == 1 and (whole or not features.clusters or not call.aligned(_VECTOR)):
        return None
    cluster = _cluster(units, blocks, s.s) if features.clusters else 1
    filled = blocks * cluster >= units * (_FILLED_BY_CLUSTERS if features.clusters else _FILLED)
    workers, least = 0 if filled else units, _MIN_KEYS * cluster
    split = split_k(s.s, blocks * cluster, workers, split_keys.MAX_SPLITS, min_terms=least, multiple=_BLOCK * cluster)
    keys = split.terms // cluster
    # A cluster starts when all of its groups have room, which groups that need a whole unit find in few places.
    groups = blocks * cluster * split.splits
    crowded = cluster > _CLUSTER or groups > (units // 2 if cluster > 1 else units)
    tiles = next((tiles for limit, tiles in TILES.items() if call.head_size <= limit), ())
    fitting = (
        tile
        for tile in tiles[crowded or keys < _MANY_KEYS :]
        if tile.local_memory(call) <= features.static_local_memory
    )
    tile = next(fitting, None)
    return None if tile is None else KeyDivision(tile, cluster, split.splits, keys)


def _cluster(units: int, blocks: int, keys: int) -> int:
    """Return the groups that share the keys of a block of queries. A large cluster is used if it takes a part of the chip."""
    most, large = keys // _MIN_KEYS, _LARGE_CLUSTER * blocks
    if most >= _LARGE_CLUSTER and units * _FILLED_BY_CLUSTERS <= large <= units / 2:
        return _LARGE_CLUSTER
    return power_of_two_at_most(max(1, min(units // blocks, most, _CLUSTER)))


def forward(runtime: Runtime, call: AttentionCall, division: KeyDivision) -> Launch:
    """Build the launches that pack a boolean mask, attend, and combine groups that are not of one cluster."""
    tile, cluster, splits = division.tile, division.cluster, division.splits
    bits = packed(runtime, call, tile.columns, call.first_workspace)
    call = replace(bits.call, copies=call.copies + len(bits.workspace))
    s = call.shape
    definitions = call.definitions(
        KEY_WARPS=tile.warps,
        COLUMNS=tile.columns,
        STAGES=tile.stages,
        ROWS_IN_REGISTERS=tile.rows_in_registers,
        FEATURES=padded_head_size(s.d),
        VALUES=padded_head_size(s.e),
        ALIGNED_ROWS=call.aligned(_VECTOR),
        CLUSTER=cluster,
        SPLIT=splits > 1,
        TENSOR_CORES=runtime.features.tensor_cores,
    )
    results: Args = {"partial": Workspace(call.first_workspace)} if splits > 1 else call.outputs()
    launch = runtime.launch(
        "attention/few_queries",
        definitions,
        {**call.operands(), **results, "keys_per_group": division.keys, **call.geometry()},
        (splits * cluster * _WARP, s.count * tile.warps, ceil_div(s.t, _ROWS)),
        (_WARP, tile.warps, 1),
        target=Target(cluster=cluster) if cluster > 1 else None,
    )
    if splits > 1:
        launch = split_keys.combined(runtime, call, launch, splits)
    return LaunchSequence((*bits.launches, launch), (*bits.workspace, *launch.workspace)) if bits.launches else launch
