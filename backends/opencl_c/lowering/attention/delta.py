"""Per-query statistics for the gradient kernels of GPUs: the logsumexp and delta, the row sums of out * g."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.launching.launch import Workspace
from polyhal.backends.common.problems.attention import mask_kind
from polyhal.backends.opencl_c.lowering.attention.call import AttentionCall, Definitions
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_LANES = 8
"""Work-items per query."""
_QUERIES = 32
"""Maximum number of queries per group."""
_VECTOR_BYTES = 16
"""Bytes of the longest vectors of features."""


def delta(
    runtime: Runtime, call: AttentionCall, target: Workspace, zeros: Workspace | None = None, zero_floats: int = 0
) -> Launch:
    """Return a launch of shaders/opencl/attention/delta.cl, which writes `statistics_bytes` of statistics to `target`.

    It also writes `zero_floats`, a multiple of four, zeros to `zeros`.
    """
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
    if zeros is not None:
        args |= {"zeros": zeros, "zero_quads": zero_floats // 4}
    most = _VECTOR_BYTES // call.dtype.itemsize
    width = most if call.results_aligned(most) and call.aligned(most) else 4
    definitions: Definitions = {
        "DTYPE": call.dtype.name,
        "REAL": call.real,
        "MASK": mask_kind(call.mask),
        "LANES": _LANES,
        "QUERIES": queries,
        "WIDTH": width,
        "ALIGNED_ROWS": call.results_aligned(width) and call.aligned(width),
        "ZEROS": zeros is not None,
        "EXCHANGE": exchange(runtime, call.itemsize, _LANES, _LANES * queries),
    }
    items, group = (ceil_div(rows, queries) * _LANES * queries,), (_LANES * queries,)
    return runtime.launch("attention/delta", definitions, args, items, group)


def statistics_bytes(call: AttentionCall) -> int:
    """Return the bytes of the workspace for the statistics."""
    numbers = 4 if mask_kind(call.mask) == 2 else 2
    return numbers * call.shape.count * call.shape.t * call.itemsize
