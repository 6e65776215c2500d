"""How many waves of a kernel a GPU holds at once, by its registers, its group and its local memory.

A wave waits some hundred cycles for local or global memory, and meanwhile other waves of its SIMD unit work. Lowering
functions predict the registers of each tile and choose the first one that leaves as many waves as the architecture needs.
NVIDIA's devices have no architecture here: their tiles were measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from polyhal.backends.common.launching.geometry import ceil_div, round_up

T = TypeVar("T")

TERM_UNROLL = 1
"""Steps to which loops over terms are unrolled (lib/unrolled_terms.h). Unrolled whole, they take twice the registers. With two
steps most take no more than with one, but a product with a bias takes 133 instead of 117 of RDNA's."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a kernel needs."""

    registers: int
    """Of 32 bits, per work-item."""
    items: int
    """Work-items of a group."""
    local_memory: int
    """Bytes, per group."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Where the waves of a family of GPUs find room. Registers are of 32 bits and counted per lane."""

    name: str
    devices: tuple[str, ...]
    """Regular expressions of which one is in the names of devices; none: every device of the vendor."""
    source: str
    lanes: int
    """Of a wave."""
    most_registers: int
    """Of a lane; a compiler that needs more spills."""
    register_file: int
    """Registers of a SIMD unit, for all its waves."""
    granularity: int
    """Registers are allocated in multiples of it."""
    simds: int
    """SIMD units that share the local memory."""
    most_waves: int
    """Of a SIMD unit."""
    aim: int
    """Waves of a SIMD unit that hide latency."""

    def waves(self, usage: Usage, local_memory: int) -> int:
        """Return the waves that a SIMD unit holds, where its unit has so many bytes of local memory; 0 if registers spill."""
        if usage.registers > self.most_registers:
            return 0
        by_registers = self.register_file // round_up(usage.registers, self.granularity)
        groups = local_memory // max(1, usage.local_memory)
        by_memory = groups * ceil_div(usage.items, self.lanes) // self.simds
        return min(self.most_waves, by_registers, by_memory)


def match(architectures: Iterable[Architecture], device: str) -> Architecture | None:
    """Return the first architecture that a device's name fits, None if there is none."""
    name = device.lower()
    return next((a for a in architectures if not a.devices or any(re.search(p, name) for p in a.devices)), None)


def choose(
    architecture: Architecture | None, local_memory: int, candidates: Sequence[T], usage: Callable[[T], Usage]
) -> T:
    """Return the first candidate with the waves that the architecture needs, else the first of those with most.

    That is the first of all if the architecture is None.
    """
    if architecture is None:
        return candidates[0]
    waves = [min(architecture.aim, architecture.waves(usage(c), local_memory)) for c in candidates]
    return candidates[waves.index(max(waves))]


def definitions(architecture: Architecture | None) -> dict[str, int]:
    """Return the definitions of kernels with a loop over the terms of a tile in local memory."""
    return {} if architecture is None else {"TERM_UNROLL": TERM_UNROLL}
