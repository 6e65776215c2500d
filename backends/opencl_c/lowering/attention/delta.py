"""Per-query statistics for the gradient kernels of GPUs: the logsumexp and delta, the row sums of out * g."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.launching.launch import Workspace
from polyhal.backends.common.problems.attention import mask_kind
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall, Definitions
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_LANES = 8
"""Work-items per query."""
_QUERIES = 32
"""Maximum number of queries per group."""


def delta(runtime: Runtime, call: AttentionCall, target: Workspace) -> Launch:
    """Return a launch of shaders/opencl/attention/delta.cl, which writes `statistics_bytes` of statistics to `target`."""
    queries = min(_QUERIES, power_of_two_at_most(runtime.features.max_group_size) // _LANES)
    rows = call.shape.count * call.shape.t
    args = {
        **call.saved_forward_args(),
        "g": call.operand("g")[0],
        "statistics": target,
        "rows": rows,
        "t": call.shape.t,
        "e": call.shape.e,
        **call.batch(),
        **call.strides("g"),
        **call.result_strides("out"),
    }
    definitions: Definitions = {
        "DTYPE": call.dtype.name,
        "REAL": call.real,
        "MASK": mask_kind(call.mask),
        "LANES": _LANES,
        "QUERIES": queries,
        "ALIGNED_ROWS": call.results_aligned() and call.aligned(),
    }
    items, group = (ceil_div(rows, queries) * _LANES * queries,), (_LANES * queries,)
    return runtime.launch("attention/delta", definitions, args, items, group)


def statistics_bytes(call: AttentionCall) -> int:
    """Return the bytes of the workspace for the statistics."""
    numbers = 4 if mask_kind(call.mask) == 2 else 2
    return numbers * call.shape.count * call.shape.t * call.itemsize
