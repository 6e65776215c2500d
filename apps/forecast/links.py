"""Links of a cluster: parsed from a name or from numbers, or measured."""

from __future__ import annotations

import re
import statistics
import time

from polyhal import Device, tensor, zeros
from polyhal.devices import Link, standard_links
from polyhal.hal.dtypes import float32
from polyhal.hal.errors import message

_NUMBERS = re.compile(r"(?P<bandwidth>\d+(?:\.\d+)?)(?:@(?P<latency>\d+(?:\.\d+)?))?")
_LATENCY = 5e-6
"""Default latency in seconds of a link that is specified by its bandwidth."""
_MEASURED_BYTES = 1 << 24
_SAMPLES = 5


def parse_link(text: str) -> Link:
    """Parse a name, or numbers such as `50@5` for 50 GB/s and 5 us. Raises ValueError that lists the names."""
    known = standard_links().get(text.strip().lower())
    if known is not None:
        return known
    numbers = _NUMBERS.fullmatch(text.strip())
    if numbers is None or not float(numbers["bandwidth"]):
        expected = f"GB/s with microseconds, such as 50@5, or one of {', '.join(standard_links())}"
        raise ValueError(message(None, f"invalid link {text!r}", expected=expected))
    latency = float(numbers["latency"]) * 1e-6 if numbers["latency"] else _LATENCY
    return Link("link", float(numbers["bandwidth"]) * 1e9, latency)


def relay_link(device: Device) -> Link:
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
    return Link("relay through the host, measured", _MEASURED_BYTES / max(large - small, 1e-9), small)
