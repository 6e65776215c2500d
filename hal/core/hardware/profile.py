"""Device profiles: figures of the sections [performance] and [links] of a card, from a laptop's GPU to a data centre's.

A card of the catalogue has them, or a file that `polyhal sim calibrate` has written. Files have the units of data sheets (GB/s,
TFLOP/s, microseconds); fields have bytes, operations per second and nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.hardware import catalogue
from polyhal.hal.core.hardware.catalogue import Card
from polyhal.hal.core.hardware.links import Link, parse_table
from polyhal.hal.dtypes import DType, float32

SECTIONS = ("performance", "links.host")
"""Sections that a card must have."""
_GIB = 1 << 30
_PRODUCTS = ("contraction", "fused", "convolution", "attention")
"""Families that compute in the dtype of their operands, if the device supports it: rates of matrix units apply only to them."""


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """Hardware figures of one device, and costs of its driver."""

    name: str
    title: str
    vendor: str
    type: DeviceType
    compute_units: int
    clock_mhz: int
    """Clock rate; 0 if unknown."""
    memory: int
    """Bytes of device memory."""
    max_allocation: int
    """Bytes of the largest single allocation."""
    local_memory: int
    """Bytes of local memory per compute unit."""
    bandwidth: float
    """Bytes per second of the device's memory."""
    peak: Mapping[str, float]
    """Operations per second by dtype; missing dtypes have the rate of `float32`."""
    efficiency: Mapping[str, float]
    """Fraction of the peak that kernels of an op family reach; `default` applies to missing families. `memory` is the
    fraction of the bandwidth."""
    latency: Mapping[str, float]
    """Minimum seconds of kernels of an op family, in addition to their launches; 0 for missing families."""
    cache: int
    """Bytes of cache: kernels whose operands fit run at `cache_bandwidth`. 0: every kernel reads the device's memory."""
    cache_bandwidth: float
    """Bytes per second of kernels with operands in the cache."""
    tile_outputs: Mapping[str, int]
    """Elements of a product's result per work-group (the tile), by dtype or `default`. Empty: products of every shape
    use the whole device."""
    split_depth: int
    """Minimum terms of a sum to split it across work-groups."""
    sliced_flops: Mapping[str, int]
    """Maximum operations of a product, by dtype, for which its sums are split within work-groups, without a second kernel."""
    fill_depth: Mapping[str, float]
    """Fill and drain time of a work-group's pipeline (load of the first operands, store of the result), by dtype, as
    the number of terms of a sum that take as long."""
    half_row: float
    """Row length of an image at which convolutions reach half of their rate."""
    packing: Mapping[str, float]
    """Bytes per second at which convolutions pack operands for vector lanes or tiles: `image`, `weights`, or neither."""
    launch_ns: int
    """Time between consecutive kernels of a queue."""
    submit_ns: int
    """Host time to write one command."""
    replay_ns: int
    """Host time per kernel of a replayed command buffer."""
    sync_ns: int
    """Time from the end of a command until the waiting host continues."""
    watchdog_ns: int
    """Maximum time of a command before the driver resets the device."""
    link: Link
    """Link to the host."""
    peer_link: Link
    """Link to the other devices of the machine."""
    dma_engines: int
    """Number of transfers that can run at once, overlapped with kernels."""
    unified_memory: bool
    """True if device and host share their memory."""

    def flops_per_second(self, dtype: DType, family: str) -> float:
        """Return the rate at which kernels of a family compute in a dtype.

        `FAMILY_DTYPE` comes before `FAMILY`. A family of several words, as `strided_convolution`, falls back to the
        family without its first word, and a single word to `default`. Kernels without products convert half precision
        to float32.
        """
        families = _families(family)
        names = [name for f in families for name in (f"{f}_{dtype.name}", f)]
        share = next((self.efficiency[name] for name in names if name in self.efficiency), self.efficiency["default"])
        is_converted = dtype.itemsize < float32.itemsize and families[-1] not in _PRODUCTS
        return self.peak.get("float32" if is_converted else dtype.name, self.peak["float32"]) * share

    def latency_of(self, family: str) -> float:
        """Return the minimum seconds of kernels of a family, in addition to launches. Families fall back as for rates."""
        return next((self.latency[f] for f in _families(family) if f in self.latency), 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the main figures as plain data."""
        return {
            "profile": self.name,
            "title": self.title,
            "type": self.type.value,
            "compute_units": self.compute_units,
            "clock_mhz": self.clock_mhz,
            "flops_per_s": self.peak["float32"],
            "peak_flops_per_s": dict(self.peak),
            "memory": self.memory,
            "bandwidth": self.bandwidth,
            "cache": self.cache,
            "cache_bandwidth": self.cache_bandwidth,
            "product_flops_per_s": self.flops_per_second(float32, "contraction"),
            "launch_ns": self.launch_ns,
            "link": self.link.name,
            "link_bandwidth": self.link.bandwidth,
            "link_latency_ns": self.link.latency_ns,
            "peer_link": self.peer_link.name,
            "peer_bandwidth": self.peer_link.bandwidth,
            "peer_latency_ns": self.peer_link.latency_ns,
            "dma_engines": self.dma_engines,
            "unified_memory": self.unified_memory,
        }


def _families(family: str) -> list[str]:
    """Return the profile keys of a family, the most specific first."""
    words = family.split("_")
    return ["_".join(words[i:]) for i in range(len(words))]


def profile_names() -> list[str]:
    """Return the names of all cards with a profile."""
    return catalogue.names(*SECTIONS)


def load_profile(name: str) -> DeviceProfile:
    """Return the profile of a card, given its name, an alias, or the path of its file.

    Raises ValueError for an unknown name, for a card without the sections, and for a file with faults, which lists all faults.
    """
    return _profile(catalogue.find(name, *SECTIONS))


def _profile(card: Card) -> DeviceProfile:
    figures, host = (card.section(name) for name in SECTIONS)
    overhead, shapes, cache = figures["overhead"], figures.get("shapes", {}), figures.get("cache", {})
    return DeviceProfile(
        name=card.name,
        title=card.title,
        vendor=card.vendor,
        type=card.type,
        compute_units=figures["compute_units"],
        clock_mhz=figures["clock_mhz"],
        memory=int(figures["memory_gib"] * _GIB),
        max_allocation=int(figures["max_allocation_gib"] * _GIB),
        local_memory=figures["local_memory_kib"] << 10,
        bandwidth=figures["bandwidth_gb_s"] * 1e9,
        peak={dtype: rate * 1e12 for dtype, rate in figures["peak_tflop_s"].items()},
        efficiency=dict(figures["efficiency"]),
        latency={family: us * 1e-6 for family, us in figures.get("latency_us", {}).items()},
        cache=int(cache.get("size_mib", 0) * (1 << 20)),
        cache_bandwidth=cache.get("bandwidth_gb_s", 0) * 1e9,
        tile_outputs=shapes.get("tile_outputs", {}),
        split_depth=shapes.get("split_depth", 1),
        sliced_flops=shapes.get("sliced_flops", {}),
        fill_depth=shapes.get("fill_depth", {}),
        half_row=shapes.get("half_row", 0.0),
        packing={operand: rate * 1e9 for operand, rate in shapes.get("packing_gb_s", {}).items()},
        launch_ns=_nanoseconds(overhead["launch_us"]),
        submit_ns=_nanoseconds(overhead["submit_us"]),
        replay_ns=_nanoseconds(overhead.get("replay_us", 0.0)),
        sync_ns=_nanoseconds(overhead["sync_us"]),
        watchdog_ns=_nanoseconds(overhead["watchdog_s"] * 1e6),
        link=parse_table(host),
        peer_link=parse_table(card.section("links.peer") if card.has("links.peer") else host),
        dma_engines=host["dma_engines"],
        unified_memory=host["unified_memory"],
    )


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)
