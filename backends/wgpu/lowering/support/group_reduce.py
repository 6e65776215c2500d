"""How a workgroup's invocations divide the rows and columns that they reduce (see shaders/wgsl/lib/group_reduce.wgsl)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.wgpu.runtime import Runtime

_GPU_INVOCATIONS = 1 << 18
"""What fills a large GPU, at several loads under way in each of them."""
_GPU_GROUP = 128
_GROUPS_PER_CORE = 4
_WALKS = 4
"""Times that a kernel walks a row at most, and one for its other loops."""
_SHORT = 16
"""Vectors that one invocation of a CPU takes rather than sharing them."""
_LEAST_WIDE = 32
"""Vectors of columns side by side that a group of a GPU takes at least, where there are so many: whole lines of memory."""
_STRIPS = 4
"""Vectors of columns side by side that each invocation of a CPU takes, so that more than a line of each row is used."""


def workers(runtime: Runtime) -> int:
    """Invocations that keep the device busy."""
    if runtime.features.cpu:
        return _groups(runtime) * runtime.features.group_size
    return _GPU_INVOCATIONS


def _groups(runtime: Runtime) -> int:
    return _GROUPS_PER_CORE * (os.cpu_count() or 1)


def cpu_lanes(runtime: Runtime, vectors: int) -> int:
    """Invocations that share a row of so many vectors on a CPU: one, or those that a vector unit takes in step."""
    return 1 if vectors <= _SHORT else enough_lanes(runtime, runtime.features.subgroup_sizes[0], vectors)


def enough_lanes(runtime: Runtime, lanes: int, vectors: int) -> int:
    """`lanes` or more, so that none walks its share of a row, up to three times, in more turns than the driver allows."""
    most = runtime.features.quirks.loop_limit // _WALKS
    while most and ceil_div(vectors, lanes) > most and lanes < runtime.features.max_group_size:
        lanes *= 2
    return lanes


def group_size(runtime: Runtime, lanes: int, count: int) -> int:
    """The group for `count` teams of `lanes`."""
    features = runtime.features
    if features.cpu:
        return max(lanes, min(features.group_size, power_of_two_at_least(ceil_div(count * lanes, _groups(runtime)))))
    return max(lanes, min(_GPU_GROUP, features.group_size))


def definitions(runtime: Runtime, lanes: int, group: int) -> dict[str, Any]:
    """The constants of lib/group_reduce.wgsl."""
    features = runtime.features
    return {"LANES": lanes, "GROUP": group, "SUBGROUP": features.subgroup_sizes[0] if features.subgroups else 0}


@dataclass(frozen=True, slots=True)
class Block:
    """What a group takes of columns: `wide` times `strips` vectors side by side, the terms of each by `tall` invocations."""

    wide: int
    tall: int
    strips: int

    @property
    def group(self) -> int:
        return self.wide * self.tall

    @property
    def vectors(self) -> int:
        """Vectors side by side."""
        return self.wide * self.strips

    @property
    def definitions(self) -> dict[str, Any]:
        return {"GROUP": self.group, "TALL": self.tall, "STRIPS": self.strips}


def block(runtime: Runtime, vectors: int, terms: int) -> Block:
    """The block for `vectors` columns of `terms` terms each."""
    if runtime.features.cpu:
        simd = runtime.features.subgroup_sizes[0]
        wide = min(simd, power_of_two_at_least(vectors))
        return Block(wide, simd // wide, min(_STRIPS, power_of_two_at_most(max(1, vectors // wide))))
    group = runtime.features.group_size
    narrowest = max(_LEAST_WIDE, group // power_of_two_at_most(max(1, terms // 4)))
    wide = min(power_of_two_at_least(vectors), narrowest)
    return Block(wide, group // wide, 1)
