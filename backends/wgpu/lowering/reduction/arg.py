"""argmax and argmin. Kernel: shaders/wgsl/reduction/arg.wgsl."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, Tensor
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.wgpu.lowering.reduction.single_pass import has_two_axes, iterator_members, row_lanes
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_UNROLL = 8
"""Maximum terms that an invocation of a GPU has in flight."""


def positions(runtime: Runtime, op: str, x: Spec, axes: Axes, out: Spec) -> Launch | Declined:
    """Return the launch (x, out) of `op`, with one lane group per result."""
    if too_large(runtime, x, out):
        return OPERAND_TOO_LARGE
    (k0, k0s), (k1, k1s) = axes.kept
    lanes = row_lanes(runtime, axes.length)
    if not runtime.features.cpu and axes.results * lanes < group_reduce.busy_invocations(runtime):
        most = power_of_two_at_most(runtime.features.max_group_size)
        lanes = max(lanes, min(most, power_of_two_at_most(max(1, axes.length // _UNROLL))))
    group = group_reduce.group_size(runtime, lanes, axes.results)
    definitions = {
        **group_reduce.definitions(runtime, lanes, group),
        "DTYPE": x.dtype.name,
        "OUT_DTYPE": out.dtype.name,
        "BETTER": ">" if op == "argmax" else "<",
        "UNROLL": 1 if runtime.features.cpu else max(1, min(_UNROLL, axes.length // lanes)),
        "OUTER": k0 > 1,
        "TWO_AXES": has_two_axes(axes),
    }
    args: Arguments = {
        "x": Tensor(0),
        "out": Tensor(1),
        "rows": axes.results,
        "k1": k1,
        "k0s": k0s,
        "k1s": k1s,
        **iterator_members(axes, lanes),
        "length": axes.length,
    }
    groups = ceil_div(axes.results * lanes, group)
    return runtime.launch("reduction/arg", definitions, args, groups)
