"""argmax and argmin; with split-K, a second pass compares the candidates. Kernel: shaders/wgsl/reduction/arg.wgsl."""

from __future__ import annotations

from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.split_k import split_k
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.wgpu.lowering.reduction.single_pass import has_two_axes, iterator_members, row_lanes
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_UNROLL = 8
"""Maximum terms that an invocation of a GPU has in flight."""
_MIN_TERMS = 4 * _UNROLL
"""Minimum terms per invocation for which a second pass is faster."""


def positions(runtime: Runtime, op: str, x: Spec, axes: Axes, out: Spec) -> Launch | Declined:
    """Return the launch (x, out) of `op`, with one lane group per split of each result."""
    if too_large(runtime, x, out):
        return OPERAND_TOO_LARGE
    (k0, k0s), (k1, k1s) = axes.kept
    lanes = row_lanes(runtime, axes.length)
    if not runtime.features.cpu and axes.results * lanes < group_reduce.busy_invocations(runtime):
        most = power_of_two_at_most(runtime.features.max_group_size)
        lanes = max(lanes, min(most, power_of_two_at_most(max(1, axes.length // _UNROLL))))
    workers = group_reduce.busy_invocations(runtime)
    split = split_k(axes.length, axes.results * lanes, workers, min_terms=lanes * _MIN_TERMS)
    common: dict[str, Any] = {
        "DTYPE": x.dtype.name,
        "BETTER": ">" if op == "argmax" else "<",
        "OUTER": k0 > 1,
        "TWO_AXES": has_two_axes(axes),
    }
    geometry: Arguments = {"x": Tensor(0), "k1": k1, "k0s": k0s, "k1s": k1s}

    def launch(lanes: int, tasks: int, definitions: dict[str, Any], args: Arguments) -> Launch:
        group = group_reduce.group_size(runtime, lanes, tasks)
        return runtime.launch(
            "reduction/arg",
            {**common, **group_reduce.definitions(runtime, lanes, group), **definitions},
            {**geometry, **iterator_members(axes, lanes), **args, "tasks": tasks},
            ceil_div(tasks * lanes, group),
        )

    unroll = 1 if runtime.features.cpu else max(1, min(_UNROLL, split.terms // lanes))
    terms: Arguments = {"length": axes.length, "splits": split.splits, "split_length": split.terms}
    if split.splits == 1:
        return launch(lanes, axes.results, {"OUT_DTYPE": out.dtype.name, "UNROLL": unroll}, {"out": Tensor(1), **terms})
    found = axes.results * split.splits
    first = launch(
        lanes, found, {"OUT_DTYPE": "uint32", "UNROLL": unroll, "SPLIT": True}, {"out": Workspace(2), **terms}
    )
    second = launch(
        min(runtime.features.group_size, power_of_two_at_least(split.splits)),
        axes.results,
        {"OUT_DTYPE": out.dtype.name, "CANDIDATES": True},
        {"out": Tensor(1), "found": Workspace(2), "length": split.splits, "splits": 1, "split_length": split.splits},
    )
    return LaunchSequence([first, second], (found * dtypes.uint32.itemsize,))
