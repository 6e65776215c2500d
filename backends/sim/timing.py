"""Virtual time: when commands start and how long they take, computed from a profile instead of measured.

No clock is read, so every run yields the same times.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from polyhal.hal.core.hardware.links import Link
from polyhal.hal.core.hardware.profile import DeviceProfile
from polyhal.hal.dtypes import DType

_UNSLICED = ("convolution", "input_gradient_convolution", "weight_gradient_convolution")


class Engine:
    """A part of the device that runs one command at a time: all compute units, or one DMA engine.

    Work is placed in the first gap that is long enough. A queue that waits for another queue thus leaves the engine to
    ready work, in any order of submission.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._busy: list[tuple[int, int]] = []
        """(start, end) of work, sorted and disjoint; intervals that touch are merged."""

    def reserve(self, ready: int, duration: int, submitted: int) -> int:
        """Reserve the first free interval of `duration` nanoseconds that starts at or after `ready`, and return its start.

        No later command is submitted before `submitted`, so earlier gaps are dropped.
        """
        while len(self._busy) > 1 and self._busy[0][1] <= submitted:
            del self._busy[0]
        start, place = ready, len(self._busy)
        for i, (begin, end) in enumerate(self._busy):
            if begin - start >= duration:
                place = i
                break
            start = max(start, end)
        self._insert(place, start, start + duration)
        return start

    def _insert(self, place: int, start: int, end: int) -> None:
        busy = self._busy
        first = last = place
        if place and busy[place - 1][1] == start:
            first, start = place - 1, busy[place - 1][0]
        if place < len(busy) and busy[place][0] == end:
            last, end = place + 1, busy[place][1]
        busy[first:last] = [(start, end)]


class KernelCost(NamedTuple):
    """Work of a kernel that determines its time."""

    family: str
    """Family of the op, the key of efficiencies in profiles."""
    dtype: DType
    """Dtype of the computation."""
    flops: int
    nbytes: int
    """Bytes read and written."""
    outputs: int = 0
    """Elements of a product's result, divided into tiles of work-groups; 0: work that divides evenly."""
    depth: int = 0
    """Terms of the sum for each output of a product."""
    row: int = 0
    """Row length of a convolution's image; 0 for other kernels."""
    packed: tuple[tuple[str, int], ...] = ()
    """Operands that a convolution packs first, on devices that require it: `image` or `weights`, and bytes."""
    launches: int = 1
    """Kernels on every device: one more for each synchronization of all work-groups."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return {"family": self.family, "dtype": self.dtype.name, "flops": self.flops, "nbytes": self.nbytes}


def kernel_ns(profile: DeviceProfile, cost: KernelCost) -> int:
    """Return the time of a kernel: launches, latency, and the slower of memory and arithmetic (the roofline model)."""
    arithmetic = cost.flops / (profile.flops_per_second(cost.dtype, cost.family) * _utilization(profile, cost))
    work = max(cost.nbytes / _bandwidth(profile, cost.nbytes), arithmetic)
    work += profile.latency_of(cost.family)
    work += sum(nbytes / profile.packing[operand] for operand, nbytes in _packed(profile, cost))
    return launches(profile, cost) * profile.launch_ns + round(work * 1e9)


def launches(profile: DeviceProfile, cost: KernelCost) -> int:
    """Return the number of kernels, including kernels that pack operands or add partial sums (split-K)."""
    sliced = cost.family not in _UNSLICED and cost.flops <= profile.sliced_flops.get(cost.dtype.name, 0)
    return cost.launches + len(_packed(profile, cost)) + (_shares(profile, cost) > 1 and not sliced)


def _packed(profile: DeviceProfile, cost: KernelCost) -> list[tuple[str, int]]:
    return [(operand, nbytes) for operand, nbytes in cost.packed if operand in profile.packing]


def submission_ns(profile: DeviceProfile, cost: KernelCost) -> int:
    """Return the host's time per kernel of a replayed command buffer."""
    return launches(profile, cost) * profile.replay_ns


def _bandwidth(profile: DeviceProfile, nbytes: int) -> float:
    """Return bytes per second of a kernel: the cache's if its operands fit, as if another kernel had just written them."""
    if nbytes <= profile.cache:
        return profile.cache_bandwidth
    return profile.bandwidth * profile.efficiency["memory"]


def _utilization(profile: DeviceProfile, cost: KernelCost) -> float:
    """Return the fraction of busy arithmetic units.

    Work-groups run in waves, and the last one may be short. Each waits for its first operands before it computes, and for
    its result to be stored afterwards. A short row of an image leaves lanes of a vector empty.
    """
    share = cost.row / (cost.row + profile.half_row) if cost.row else 1.0
    if not cost.outputs or not profile.tile_outputs:
        return share
    units = profile.compute_units
    share *= cost.depth / (cost.depth + profile.fill_depth.get(cost.dtype.name, 0))
    tiles = _tiles(profile, cost)
    waves = math.ceil(tiles / units)
    return share * min(tiles * _shares(profile, cost) / (waves * units), 1.0)


def _tiles(profile: DeviceProfile, cost: KernelCost) -> float:
    """Return the number of tiles of a product's result."""
    outputs = profile.tile_outputs
    return max(1.0, cost.outputs / outputs.get(cost.dtype.name, outputs["default"]))


def _shares(profile: DeviceProfile, cost: KernelCost) -> float:
    """Return the number of work-groups per sum (split-K), used if there are fewer tiles than in two waves."""
    if not cost.outputs or not profile.tile_outputs or _tiles(profile, cost) >= 2 * profile.compute_units:
        return 1.0
    return max(1.0, cost.depth / profile.split_depth)


def transfer_ns(link: Link, nbytes: int) -> int:
    """Return the time of a transfer over a link."""
    return link.latency_ns + round(nbytes / link.bandwidth * 1e9)


def local_copy_ns(profile: DeviceProfile, nbytes: int) -> int:
    """Return the time of a copy within the device's memory, which reads and writes every byte."""
    return profile.launch_ns + round(2 * nbytes / _bandwidth(profile, 2 * nbytes) * 1e9)
