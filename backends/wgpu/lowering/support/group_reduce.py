"""Assignment of invocations to rows and columns in reductions (shaders/wgsl/lib/group_reduce.wgsl)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.wgpu.runtime import Runtime

_GPU_INVOCATIONS = 1 << 18
"""Invocations that fill a large GPU, given several loads in flight per invocation."""
_GPU_GROUP = 128
_GROUPS_PER_CORE = 4
_LOOPS = 4
"""Maximum loops over a row in a kernel, plus one for its other loops."""
_SHORT = 16
"""Maximum vectors of a row that one invocation of a CPU reduces."""
_MIN_GPU_COLUMNS = 32
"""Adjacent vectors per workgroup of a GPU in column reductions, if the row has as many: whole cache lines."""
_FEW_TERMS = 2048
"""Maximum terms for which a workgroup has as few columns as a cache line holds, so that one pass suffices."""
_CPU_STRIPS = 4
"""Adjacent vectors per invocation of a CPU in column reductions, so that more than one cache line of each row is used."""


def busy_invocations(runtime: Runtime) -> int:
    """Return the number of invocations that keep the device busy."""
    if runtime.features.cpu:
        return _busy_groups() * runtime.features.group_size
    return _GPU_INVOCATIONS


def _busy_groups() -> int:
    return _GROUPS_PER_CORE * (os.cpu_count() or 1)


def cpu_lanes(runtime: Runtime, vectors: int) -> int:
    """Return the lanes for a row of `vectors` vectors on a CPU: one, or a whole vector unit."""
    return 1 if vectors <= _SHORT else enough_lanes(runtime, runtime.features.subgroup_sizes[0], vectors)


def enough_lanes(runtime: Runtime, lanes: int, vectors: int) -> int:
    """Return at least `lanes` lanes, so that no invocation exceeds the driver's limit of loop iterations."""
    limit = runtime.features.quirks.loop_limit // _LOOPS
    while limit and ceil_div(vectors, lanes) > limit and lanes < runtime.features.max_group_size:
        lanes *= 2
    return lanes


def group_size(runtime: Runtime, lanes: int, count: int) -> int:
    """Return the workgroup size for `count` lane groups of `lanes`."""
    features = runtime.features
    if features.cpu:
        balanced = power_of_two_at_least(ceil_div(count * lanes, _busy_groups()))
        return max(lanes, min(features.group_size, balanced))
    return max(lanes, min(_GPU_GROUP, features.group_size))


def definitions(runtime: Runtime, lanes: int, group: int) -> dict[str, Any]:
    """Return the template variables of lib/group_reduce.wgsl."""
    features = runtime.features
    return {"LANES": lanes, "GROUP": group, "SUBGROUP": features.subgroup_sizes[0] if features.subgroups else 0}


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """The workgroup of a column reduction: `rows` x `columns` invocations, each for `strips` vectors of columns."""

    columns: int
    rows: int
    strips: int

    @property
    def group(self) -> int:
        """Number of invocations."""
        return self.columns * self.rows

    @property
    def vectors(self) -> int:
        """Number of adjacent vectors of columns."""
        return self.columns * self.strips

    @property
    def definitions(self) -> dict[str, Any]:
        return {"GROUP": self.group, "GROUP_ROWS": self.rows, "STRIPS": self.strips}


def column_group(runtime: Runtime, vectors: int, terms: int, width: int = 1) -> ColumnGroup:
    """Return the workgroup for `vectors` vectors of `width` columns with `terms` terms each."""
    if runtime.features.cpu:
        lanes = runtime.features.subgroup_sizes[0]
        columns = min(lanes, power_of_two_at_least(vectors))
        strips = min(_CPU_STRIPS, power_of_two_at_most(max(1, vectors // columns)))
        return ColumnGroup(columns, lanes // columns, strips)
    group = runtime.features.group_size
    fewest = _MIN_GPU_COLUMNS // width if terms <= _FEW_TERMS else _MIN_GPU_COLUMNS
    narrowest = max(fewest, group // power_of_two_at_most(max(1, terms // 4)))
    columns = min(power_of_two_at_least(vectors), narrowest)
    return ColumnGroup(columns, group // columns, 1)
