"""Occupancy: resident waves of a kernel on a GPU, from its registers, group size and local memory.

A wave stalls for hundreds of cycles on local or global memory, while other waves of its SIMD unit run. Lowering
functions predict the registers of each tile and choose the first one that leaves as many waves as the architecture
needs. NVIDIA's devices have no occupancy model: their tiles were measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.hal.core.settings.toml_schema import Key, TableSchema

T = TypeVar("T")

TERM_UNROLL = 1
"""Unroll factor of loops over terms (lib/unrolled_terms.h). Unrolled completely, they take twice the registers.

With factor 2 most take no more than with 1, but a product with a bias takes 133 instead of 117 registers on RDNA.
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of a kernel."""

    registers: int
    """32-bit registers per work-item."""
    items: int
    """Work-items per group."""
    local_memory: int
    """Bytes of local memory per group."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Resources that limit the resident waves of a GPU family. Registers have 32 bits and are counted per lane."""

    name: str
    devices: tuple[str, ...]
    """Regular expressions; one has to match a device's name. Empty for every device of the vendor."""
    source: str
    lanes: int
    """Lanes per wave."""
    most_registers: int
    """Maximum registers per lane; a compiler that needs more spills."""
    register_file: int
    """Registers of a SIMD unit, for all its waves."""
    granularity: int
    """Allocation granularity of registers."""
    simds: int
    """SIMD units that share a local memory."""
    most_waves: int
    """Maximum waves per SIMD unit."""
    aim: int
    """Target of waves per SIMD unit, enough to hide latency."""

    def waves(self, usage: Usage, local_memory: int) -> int:
        """Return the resident waves per SIMD unit for a compute unit with `local_memory` bytes; 0 if registers spill."""
        if usage.registers > self.most_registers:
            return 0
        by_registers = self.register_file // round_up(usage.registers, self.granularity)
        groups = local_memory // max(1, usage.local_memory)
        by_memory = groups * ceil_div(usage.items, self.lanes) // self.simds
        return min(self.most_waves, by_registers, by_memory)


_NUMBERS = ("lanes", "most_registers", "register_file", "granularity", "simds", "most_waves", "aim")
SCHEMA = TableSchema(
    {
        **dict.fromkeys(("name", "source"), Key(str)),
        "devices": Key(str, many=True, optional=True),
        **dict.fromkeys(_NUMBERS, Key(int)),
    },
    many=True,
    optional=True,
)
"""Architectures in a vendor profile."""


def parse(facts: Mapping[str, Any]) -> Architecture:
    """Return the architecture of a valid entry of a profile."""
    return Architecture(**{**facts, "devices": tuple(facts.get("devices", ()))})


def match(architectures: Iterable[Architecture], device: str) -> Architecture | None:
    """Return the first architecture that matches a device's name; None without a match."""
    name = device.lower()
    return next((a for a in architectures if not a.devices or any(re.search(p, name) for p in a.devices)), None)


def choose(
    architecture: Architecture | None, local_memory: int, candidates: Sequence[T], usage: Callable[[T], Usage]
) -> T:
    """Return the first candidate with the target waves of the architecture, else the first with the most waves.

    Without an architecture, return the first candidate.
    """
    if architecture is None:
        return candidates[0]
    waves = [min(architecture.aim, architecture.waves(usage(c), local_memory)) for c in candidates]
    return candidates[waves.index(max(waves))]


def definitions(architecture: Architecture | None) -> dict[str, int]:
    """Return the definitions of kernels with a loop over the terms of a tile in local memory."""
    return {} if architecture is None else {"TERM_UNROLL": TERM_UNROLL}
