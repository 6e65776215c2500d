"""Passes of Fourier transforms in local memory, for GPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.problems.fft import Pass, PassLimits
from polyhal.backends.common.problems.fft_arguments import pass_arguments
from polyhal.backends.common.problems.fft_lengths import work_items
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.fft.operands import memory
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Launch

_MAX_LENGTH = 4096
"""Elements of a row; a work-item has about _EACH of them."""
_EACH = 8
"""Elements of a work-item: one butterfly of this radix, several of smaller ones."""
_GROUP = 256
"""Work-items of a group if rows are contiguous."""
_SEGMENT = 32
"""Bytes of neighbouring rows that a group reads at once if rows are not contiguous: a sector of a cache line."""
_BANKS = 32


def limits(features: KernelFeatures, dtype: DType) -> PassLimits:
    """Return the lengths whose rows fit in local memory: one row, or enough neighbouring ones for whole sectors."""
    elements = features.static_local_memory // dtype.itemsize
    single = min(_MAX_LENGTH, power_of_two_at_most(max(elements * 3 // 4, 2)), 4 * features.max_group_size)
    several = power_of_two_at_most(max(elements * 3 // 4 * dtype.itemsize // _SEGMENT, 2))
    return PassLimits(single, min(single, several))


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows of a group, and the work-items of each."""

    lanes: int
    workers: int
    planes: int
    """2 if real and imaginary parts are exchanged at once."""


def _row(length: int, lanes: int) -> int:
    """Return the elements of local memory for a row (ROW in fft/local_stages.cl)."""
    more = length // 4 if length & (length - 1) == 0 else 0
    return (length + length // _BANKS + more + _BANKS - 1) // _BANKS * _BANKS + (
        _BANKS // lanes if lanes < _BANKS else 1
    )


def tile(step: Pass, features: KernelFeatures, dtype: DType) -> Tile:
    """Choose the tile of a pass: enough rows to occupy a group, or for whole sectors of neighbouring rows."""
    workers = work_items(step.radices, _EACH, features.max_group_size)
    most = features.static_local_memory // dtype.itemsize
    wanted = max(1, _GROUP // workers)
    if step.source_lanes_first or step.target_lanes_first:
        wanted = max(wanted, _SEGMENT // dtype.itemsize)
    lanes = min(power_of_two_at_most(wanted), power_of_two_at_least(step.lanes))
    while lanes > 1 and (lanes * workers > features.max_group_size or lanes * _row(step.length, lanes) > most):
        lanes //= 2
    planes = 2 if 2 * lanes * _row(step.length, lanes) <= most * 3 // 4 else 1
    return Tile(lanes, workers, planes)


def launch(runtime: Runtime, step: Pass, dtype: DType) -> Launch:
    """Build the launch of a pass. Raises KernelBuildError."""
    chosen = tile(step, runtime.features, dtype)
    arguments = pass_arguments(step, chosen.lanes, dtype.itemsize)
    source, target = ([p.strides[-1] for p in (x.re, x.im) if p is not None] for x in (step.source, step.target))
    registers = max(r * ceil_div(step.length // r, chosen.workers) for r in step.radices)
    definitions: Definitions = {
        **arguments.definitions,
        "REAL": real_type(dtype),
        "LANES": chosen.lanes,
        "WORKERS": chosen.workers,
        "REGISTERS": registers,
        "PLANES": chosen.planes,
        "LANES_FIRST_LOAD": step.source_lanes_first,
        "LANES_FIRST_STORE": step.target_lanes_first,
        "SOURCE_UNIT": all(s == 1 for s in source),
        "TARGET_UNIT": all(s == 1 for s in target),
        "NARROW": step.length * max(map(abs, source + target)) < 1 << 31,
        "WHOLE_BLOCKS": step.lanes % chosen.lanes == 0,
    }
    group = chosen.lanes * chosen.workers
    groups = math.prod(step.outer) * ceil_div(step.lanes, chosen.lanes)
    return runtime.launch(
        "fft/local_stages",
        definitions,
        {
            **memory("source", step.source),
            **memory("target", step.target),
            "table": arguments.table,
            "scale": step.store.scale,
            **arguments.geometry,
        },
        (groups * group,),
        (group,),
    )
