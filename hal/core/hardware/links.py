"""Links between devices, and the standard ones: NVLink, PCIe, InfiniBand, Ethernet."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.hal.core.hardware.standards import standard_tables


@dataclass(frozen=True, slots=True)
class Link:
    """One connection."""

    name: str
    bandwidth: float
    """Bytes per second in one direction."""
    latency: float
    """Seconds from the start of a message to the arrival of its first byte, software included."""

    @property
    def latency_ns(self) -> int:
        """Latency in whole nanoseconds."""
        return round(self.latency * 1e9)

    def __str__(self) -> str:
        if math.isinf(self.bandwidth):
            return self.name
        return f"{self.name} ({self.bandwidth / 1e9:g} GB/s, {self.latency * 1e6:g} us)"


IDEAL = Link("ideal", math.inf, 0.0)
"""Link without a cost."""


@functools.cache
def standard_links() -> Mapping[str, Link]:
    """Return the standard links by name, and `ideal`."""
    return {**{name: parse_table(table) for name, table in standard_tables("links").items()}, IDEAL.name: IDEAL}


def parse_table(table: Mapping[str, Any]) -> Link:
    """Return the link of a valid table."""
    return Link(table["kind"], table["bandwidth_gb_s"] * 1e9, table["latency_us"] * 1e-6)
