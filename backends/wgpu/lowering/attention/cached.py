"""Attention of few queries to a cache. Kernels: shaders/wgsl/attention/cached.wgsl and cached_reduce.wgsl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.wgpu.lowering.attention.arguments import VECTOR
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_MAX_QUERIES = 16
"""Maximum queries of a head; with more, kernels that read tiles of queries and keys are faster."""
_MAX_FEATURES = 256
_ROWS = 4
"""Maximum rows of a workgroup, whose sums are in registers."""
_GROUP = 128
_BUSY_GROUPS = 512
"""Workgroups that keep a large GPU busy."""
_MIN_KEYS = 256
"""Minimum keys per workgroup of a split head."""
_MAX_SPLITS = 64
_AXES = ("batch", "head", "row")
_STATISTICS = 4
"""Floats of a partial result in addition to its features."""


def cached_attention(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> Launch | Declined:
    """Lower the op `cached_attention`."""
    q, k, v, lengths = (x for x in inputs if isinstance(x, Spec))
    (out,) = outputs
    batch, heads, queries, d = q.shape
    kept, capacity, e = k.shape[1], k.shape[2], v.shape[3]
    if refused := _refusal(q, k, v):
        return Declined(refused)
    if too_large(runtime, q, k, v, out):
        return OPERAND_TOO_LARGE
    rows = heads // kept * queries
    each = _ROWS if rows > 2 else rows
    group = runtime.features.group_size if runtime.features.cpu else min(_GROUP, runtime.features.max_group_size)
    blocks = batch * kept * ceil_div(rows, each)
    splits = (
        1 if runtime.features.cpu else max(1, min(ceil_div(_BUSY_GROUPS, blocks), capacity // _MIN_KEYS, _MAX_SPLITS))
    )
    variables = {
        **group_reduce.definitions(runtime, group, group),
        "DTYPE": q.dtype.name,
        "CACHE_DTYPE": k.dtype.name,
        "ROWS": each,
        "QUADS": d // VECTOR,
        "VALUE_QUADS": e // VECTOR,
        "Q_WIDTH": VECTOR if _has_vectors(q) else 1,
        "WIDTH": VECTOR if _has_vectors(k) and _has_vectors(v) else 1,
        "SOFTCAP": params["softcap"] is not None,
        "SPLIT": splits > 1,
    }
    args: Arguments = {
        "q": Tensor(0),
        "k": Tensor(1),
        "v": Tensor(2),
        "lengths": Tensor(3),
        **({"partial": Workspace(5)} if splits > 1 else {"out": Tensor(4)}),
        "heads": batch * kept,
        "kept": kept,
        "queries": queries,
        "rows": rows,
        "capacity": capacity,
        "splits": splits,
        "length_step": lengths.strides[0],
        **{
            f"{name}_{axis}": s.strides[i] for name, s in (("q", q), ("k", k), ("v", v)) for i, axis in enumerate(_AXES)
        },
        "window": params["window"] or 0,
        "scale": params["scale"],
        "softcap": params["softcap"] or 0.0,
    }
    attend = runtime.launch("attention/cached", variables, args, blocks * splits)
    if splits == 1:
        return attend
    items = batch * heads * queries * (e // VECTOR)
    size = runtime.features.group_size
    reduce = runtime.launch(
        "attention/cached_reduce",
        {"DTYPE": out.dtype.name, "VALUE_QUADS": e // VECTOR, "GROUP": size},
        {"partial": Workspace(5), "out": Tensor(4), "items": items, "splits": splits},
        ceil_div(items, size),
    )
    return LaunchSequence((attend, reduce), (batch * heads * queries * splits * (e + _STATISTICS) * 4,))


def _refusal(q: Spec, k: Spec, v: Spec) -> str:
    """Return the reason why the kernel does not support a call; empty if it does."""
    (queries, d), e = q.shape[-2:], v.shape[-1]
    if not q.size or not k.size or not v.size:
        return "an operand is empty"
    if queries > _MAX_QUERIES:
        return f"{queries} queries; the kernel takes {_MAX_QUERIES}"
    if max(d, e) > _MAX_FEATURES or d % VECTOR or e % VECTOR:
        return f"heads of {d} and {e} features; the kernel takes multiples of {VECTOR} up to {_MAX_FEATURES}"
    if any(s.dtype is dtypes.float64 for s in (q, k, v)) or k.dtype is not v.dtype:
        return f"queries of {q.dtype.name}, keys of {k.dtype.name}, values of {v.dtype.name}"
    if any(s.strides[-1] != 1 for s in (q, k, v)):
        return "the features of a head are not contiguous"
    return ""


def _has_vectors(s: Spec) -> bool:
    return s.aligned and all(stride % VECTOR == 0 for stride in s.strides[:-1])
