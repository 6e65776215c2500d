"""Passes of Fourier transforms in the memory of workgroups."""

from __future__ import annotations

import math

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.problems.fft import Pass, PassLimits
from polyhal.backends.common.problems.fft_arguments import pass_arguments
from polyhal.backends.common.problems.fft_lengths import work_items
from polyhal.backends.wgpu.capabilities import WGPUFeatures
from polyhal.backends.wgpu.lowering.fft.arguments import bound
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.protocol import Launch

_RADIX_BITS = 3
"""Binary logarithm of the largest radix: shaders keep its numbers in variables of their own."""
_BYTES = 8
_LANES = 4
"""Neighbouring rows of a workgroup if rows are not contiguous: two real parts then fill a sector of a cache line."""
_EACH = 8
"""Elements of an invocation."""


def limits(features: WGPUFeatures) -> PassLimits:
    """Return the lengths whose rows fit in a workgroup's memory: one row, or several neighbouring ones."""
    elements = features.local_memory // _BYTES * 15 // 16
    single = min(power_of_two_at_most(elements), _EACH * features.max_group_size)
    return PassLimits(single, max(2, single // _LANES), _RADIX_BITS)


def launch(runtime: Runtime, step: Pass) -> Launch:
    """Build the launch of a pass. Raises KernelBuildError."""
    features = runtime.features
    workers = work_items(step.radices, _EACH, features.max_group_size)
    wanted = max(1, features.group_size // workers)
    if step.source_lanes_first or step.target_lanes_first:
        wanted = max(wanted, _LANES)
    lanes = min(power_of_two_at_most(wanted), power_of_two_at_least(step.lanes))
    while lanes > 1 and (
        lanes * workers > features.max_group_size or lanes * _row(step.length) * _BYTES > features.local_memory
    ):
        lanes //= 2
    arguments = pass_arguments(step, lanes, 4)
    definitions = {
        name: value for name, value in arguments.definitions.items() if not name.startswith(("RADIX", "STAGES"))
    }
    groups = math.prod(step.outer) * ceil_div(step.lanes, lanes)
    return runtime.launch(
        "fft/local_stages",
        {
            **definitions,
            "RADICES": " ".join(map(str, step.radices)),
            "LANES": lanes,
            "WORKERS": workers,
            "LANES_FIRST_LOAD": step.source_lanes_first,
            "LANES_FIRST_STORE": step.target_lanes_first,
        },
        bound(step.source, step.target, arguments, groups, step.store.scale),
        groups,
    )


def _row(length: int) -> int:
    """Return the elements of workgroup memory for a row (ROW in fft/local_stages.wgsl)."""
    return length + length // 16 + 1
