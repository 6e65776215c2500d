"""Attention of one new position per sequence, with its rotation and its place in a cache, in one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Strided, Tensor, early
from polyhal.backends.common.problems.multi_tensor import copy_unless_aliased
from polyhal.backends.common.problems.rotary import several_dtypes
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.ptx import Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_KEYS, _VALUES, _Q, _K, _V, _LENGTHS, _COSINES, _SINES, _OUT = range(9)
"""Positions in the argument list. Results replace the cache."""
_VECTOR_BYTES = 16
_WARP = 32
"""Maximum number of work-items that share a key: their scores are summed by shuffles. Minimum number of features."""
_ROWS = 4
"""Maximum queries that a group holds in registers."""
_RESIDENT = 2
"""Groups of a compute unit by the registers of two queries each, so that one starts beside groups of the launch in front."""
_CLUSTER = 8
"""Maximum groups that share the keys of a head."""
_MOST_KEYS = 2048
"""Positions of a cache per group, above which more groups in two launches are faster."""


@dataclass(frozen=True, slots=True)
class StepTile:
    """A group has `key_lanes` rows of `feature_lanes` work-items; each row reads `keys` keys at a time, for `rows` queries."""

    width: int
    feature_lanes: int
    key_lanes: int
    keys: int
    rows: int
    cluster: int


def choose(runtime: Runtime, q: Spec, cached: Spec) -> StepTile | Declined:
    """Return the tile for a device and shapes, or the reason why several launches take the op."""
    features = runtime.features
    if not features.tensor_cores:
        return Declined("a device whose work-items do not exchange values by shuffles")
    size = q.shape[3]
    width = _VECTOR_BYTES // cached.dtype.itemsize
    lanes = power_of_two_at_least(ceil_div(size, width))
    if size % width or not _WARP <= lanes * width <= _WARP * width:
        return Declined(f"heads of {size} features")
    shared, heads = q.shape[1] // cached.shape[1], cached.shape[0] * cached.shape[1]
    rows = min(_ROWS, power_of_two_at_least(shared))
    if rows == _ROWS and heads * ceil_div(shared, rows // 2) * _CLUSTER <= features.compute_units:
        rows //= 2
    blocks = heads * ceil_div(shared, rows)
    most = power_of_two_at_most(max(1, features.compute_units // blocks))
    cluster = min(_CLUSTER, most) if features.clusters else 1
    if cached.shape[2] > _MOST_KEYS * cluster and blocks < features.compute_units:
        return Declined(f"a cache of {cached.shape[2]} positions for {blocks * cluster} groups")
    return StepTile(width, lanes, 256 // lanes, 4, rows, cluster)


def rotary_attention(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `rotary_attention`."""
    cached, cached_values, q, k, v, lengths, cosines, sines = (s for s in inputs if isinstance(s, Spec))
    whole = (cached, cached_values, *outputs)
    if not all(x.is_contiguous and x.aligned for x in whole) or max(x.size for x in (q, *outputs)) >= 1 << 31:
        return Declined("a cache or results that are not contiguous, or 2^31 elements or more")
    if refused := several_dtypes(q, k, v, outputs):
        return refused
    if cosines.dtype is not sines.dtype or {real_type(s.dtype) for s in (q, cached, cosines)} != {"float"}:
        return Declined(f"queries of {q.dtype.name}, cosines of {cosines.dtype.name}, sines of {sines.dtype.name}")
    tile = choose(runtime, q, cached)
    if isinstance(tile, Declined):
        return tile

    def row(place: int, spec: Spec) -> Strided:
        b0, b1, _, column = spec.strides
        return Strided(Tensor(place), {"b0": b0, "b1": b1, "column": column})

    def angles(place: int, spec: Spec) -> Strided:
        b0, _, _, column = broadcast_strides(spec.shape, spec.strides, (q.shape[0], 1, 1, cosines.shape[-1]))
        return Strided(Tensor(place), {"b0": b0, "column": column})

    window, softcap = params["window"] or 0, params["softcap"] or 0.0
    args: Arguments = {
        "q": row(_Q, q),
        "k": row(_K, k),
        "v": row(_V, v),
        "lengths": early(Strided(Tensor(_LENGTHS), {"step": lengths.strides[0]})),
        "cosines": angles(_COSINES, cosines),
        "sines": angles(_SINES, sines),
        "keys": Tensor(_KEYS, early=True),
        "values": Tensor(_VALUES, early=True),
        "stored_keys": Tensor(_OUT),
        "stored_values": Tensor(_OUT + 1),
        "out": Tensor(_OUT + 2),
        "shared": q.shape[1] // cached.shape[1],
        "cached": cached.shape[1],
        "half_": cosines.shape[-1],
        "capacity": cached.shape[2],
        "window": window,
        "scale": params["scale"],
        **({"softcap": softcap} if softcap else {}),
    }
    definitions: dict[str, str | int | bool] = {
        "DTYPE": q.dtype.name,
        "CACHE_DTYPE": cached.dtype.name,
        "TABLE_DTYPE": cosines.dtype.name,
        "HEAD_SIZE": q.shape[3],
        "WIDTH": tile.width,
        "ALIGNED": True,
        "FEATURE_LANES": tile.feature_lanes,
        "KEY_LANES": tile.key_lanes,
        "KEYS": tile.keys,
        "ROWS": tile.rows,
        "CLUSTER": tile.cluster,
        "INTERLEAVED": bool(params["interleaved"]),
        "WINDOW": window > 0,
        "SOFTCAP": softcap > 0,
        "TENSOR_CORES": runtime.features.tensor_cores,
        "PTX_BFLOAT16": runtime.features.tensor_cores,
    }
    group = tile.feature_lanes * tile.key_lanes
    shared = q.shape[1] // cached.shape[1]
    launch = runtime.launch(
        "attention/rotary_attention",
        definitions,
        args,
        (tile.cluster * group, cached.shape[0] * cached.shape[1], ceil_div(shared, tile.rows)),
        (group, 1, 1),
        target=Target(groups=_RESIDENT if tile.rows < _ROWS else 0, cluster=tile.cluster) if tile.cluster > 1 else None,
    )
    copied = copy_unless_aliased(copy.copy, runtime, [(0, 0), (1, 1)], inputs, outputs)
    return LaunchSequence((copied, launch))
