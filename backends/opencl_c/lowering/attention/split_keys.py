"""Split-K of attention: groups take ranges of the keys of a head, and a second launch combines their partial results."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.launching.split_k import SplitK, split_k
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

MAX_SPLITS = 64
"""Maximum number of groups that share a head (MAX_SPLITS of attention/split_reduce.cl)."""
_REDUCE_GROUP = 64
"""Work-items that combine the partial results of a query."""
_STATISTICS = 2
"""Reals of a partial result in addition to its features: the maximum and the sum of exponentials."""


def choose(
    runtime: Runtime, call: AttentionCall, blocks: int, groups_per_unit: int, min_keys: int, multiple: int
) -> SplitK:
    """Return the division of the keys of each head, given the number of groups, `blocks`, without it."""
    workers = groups_per_unit * runtime.features.compute_units
    return split_k(call.shape.s, blocks, workers, MAX_SPLITS, min_terms=min_keys, multiple=multiple, fill=True)


def combined(runtime: Runtime, call: AttentionCall, attend: Launch, splits: int) -> Launch:
    """Follow a launch that writes `splits` partial results per query by one that combines them."""
    s = call.shape
    rows = s.count * s.t
    size = 1 if runtime.features.cpu else _REDUCE_GROUP
    reduce = runtime.launch(
        "attention/split_reduce",
        {
            "OUT_DTYPE": call.out_dtype.name,
            "REAL": call.real,
            "GROUP": size,
            "MAX_SPLITS": MAX_SPLITS,
            "LOGSUMEXP": call.cache is None,
        },
        {
            "partial": Workspace(call.first_workspace),
            **call.outputs(),
            "t": s.t,
            "e": s.e,
            "splits": splits,
            **call.batch(),
            **call.result_strides("out"),
        },
        (rows * size,),
        (size,),
    )
    return LaunchSequence((attend, reduce), (rows * splits * (s.e + _STATISTICS) * call.itemsize,))
