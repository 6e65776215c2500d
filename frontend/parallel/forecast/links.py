"""Links between devices: bandwidth and latency within a node and between nodes.

Bandwidths are measured payload rates in one direction, which are lower than those in data sheets.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from dataclasses import dataclass

from polyhal.creation import tensor, zeros
from polyhal.hal.device import Device
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import message

_NUMBERS = re.compile(r"(?P<bandwidth>\d+(?:\.\d+)?)(?:@(?P<latency>\d+(?:\.\d+)?))?")
_LATENCY = 5e-6
"""Default latency in seconds of a link that is specified by its bandwidth."""
_MEASURED_BYTES = 1 << 24
_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class ClusterLink:
    """One connection."""

    name: str
    bandwidth: float
    """Bytes per second in one direction."""
    latency: float
    """Seconds from the start of a message to the arrival of its first byte, software included."""

    def __str__(self) -> str:
        if math.isinf(self.bandwidth):
            return self.name
        return f"{self.name} ({self.bandwidth / 1e9:g} GB/s, {self.latency * 1e6:g} us)"


def _link(name: str, gb_s: float, us: float) -> ClusterLink:
    return ClusterLink(name, gb_s * 1e9, us * 1e-6)


LINKS = {
    link.name: link
    for link in (
        # NVIDIA's data sheets state 900, 600 and 300 GB/s as the sum of both directions. Copies between two H200 reach
        # 390 GB/s; the other two are scaled by the same efficiency.
        _link("nvlink4", 390, 2),
        _link("nvlink3", 260, 2),
        _link("nvlink2", 130, 2),
        # 16 lanes: 63, 31.5 and 15.8 GB/s. About 80 % of that is payload; the rest are packet headers.
        _link("pcie5", 50, 5),
        _link("pcie4", 25, 5),
        _link("pcie3", 12.5, 5),
        # 800, 400, 200 and 100 Gbit/s per port, 95 % of it payload. A step of a collective takes about 5 us.
        _link("infiniband-xdr", 95, 5),
        _link("infiniband-ndr", 47.5, 5),
        _link("infiniband-hdr", 23.8, 5),
        _link("infiniband-edr", 11.9, 5),
        # TCP on Ethernet: 90 % payload, and tens of microseconds per message for both kernels.
        _link("ethernet-100g", 11.2, 30),
        _link("ethernet-25g", 2.8, 30),
        _link("ethernet-10g", 1.12, 40),
        _link("ethernet-1g", 0.112, 60),
        ClusterLink("ideal", math.inf, 0.0),
    )
}
"""Links by name."""


def parse_link(text: str) -> ClusterLink:
    """Parse a name, or numbers such as `50@5` for 50 GB/s and 5 us. Raises ValueError that lists the names."""
    known = LINKS.get(text.strip().lower())
    if known is not None:
        return known
    numbers = _NUMBERS.fullmatch(text.strip())
    if numbers is None or not float(numbers["bandwidth"]):
        expected = f"GB/s with microseconds, such as 50@5, or one of {', '.join(LINKS)}"
        raise ValueError(message(None, f"invalid link {text!r}", expected=expected))
    latency = float(numbers["latency"]) * 1e-6 if numbers["latency"] else _LATENCY
    return ClusterLink("link", float(numbers["bandwidth"]) * 1e9, latency)


def relay_link(device: Device) -> ClusterLink:
    """Measure the path from a device through the host to another device of the same kind."""

    def seconds(elements: int) -> float:
        x = zeros((elements,), float32, device)
        samples = []
        for _ in range(_SAMPLES):
            begin = time.perf_counter()
            x.copy_(tensor(x.numpy(), device=device))
            device.synchronize()
            samples.append(time.perf_counter() - begin)
        return statistics.median(samples)

    small, large = seconds(1), seconds(_MEASURED_BYTES // float32.itemsize)
    return ClusterLink("relay through the host, measured", _MEASURED_BYTES / max(large - small, 1e-9), small)
