"""Profiles: the numbers that make a simulated device a laptop's or a data centre's.

A profile is a TOML file: one in `profiles`, or one that `polyhal sim calibrate` has written. Units there are those of data
sheets (GB/s, TFLOP/s, microseconds); here they are bytes, operations per second and nanoseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from polyhal.backends.sim.profile_keys import check
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.dtypes import DType, float32
from polyhal.hal.settings import toml

DEFAULT = "teaching"
"""The profile of `Device("sim")`."""
SUFFIX = ".toml"
_GIB = 1 << 30
_PRODUCTS = ("contraction", "fused", "convolution", "attention")
"""Families that compute in the dtype of their operands, where the device can: the rates of matrix units are theirs alone."""
_PACKAGE = "polyhal.backends.sim.profiles"


@dataclass(frozen=True, slots=True)
class Link:
    """The connection between a device and the host, or between two devices."""

    kind: str
    bandwidth: float
    """Bytes per second in one direction."""
    latency_ns: int
    """From the start of a transfer to its first byte."""


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The hardware of one device, and what its driver costs."""

    name: str
    title: str
    type: DeviceType
    compute_units: int
    clock_mhz: int
    """0 if it is not known."""
    memory: int
    """Bytes."""
    max_allocation: int
    """Bytes of the largest single allocation."""
    local_memory: int
    """Bytes of local memory per compute unit."""
    bandwidth: float
    """Bytes per second of the device's memory."""
    peak: Mapping[str, float]
    """Operations per second by dtype; `float32` stands in for dtypes that are missing."""
    efficiency: Mapping[str, float]
    """The share of the peak that kernels of a family of ops reach; `default` stands in for families that are missing.
    `memory` is the share of the bandwidth."""
    latency: Mapping[str, float]
    """Seconds that kernels of a family of ops take besides their launches, however little there is to do; 0 for families that
    are missing."""
    cache: int
    """Bytes: kernels whose operands fit run at `cache_bandwidth`. 0: every kernel reads the device's memory."""
    cache_bandwidth: float
    """Bytes per second that kernels reach with operands in the cache."""
    tile_outputs: Mapping[str, int]
    """Elements of a product's result that one work-group makes, by dtype or `default`. Empty: products of every shape use the
    whole device."""
    split_depth: int
    """Terms of a sum below which work-groups do not share it."""
    sliced_flops: Mapping[str, int]
    """Operations of a product, by dtype, up to which its sums are shared within work-groups, which takes no second kernel."""
    fill_depth: Mapping[str, float]
    """Terms of a sum for which a work-group could compute, by dtype, while it waits for its first operands and stores its
    result."""
    half_row: float
    """Elements in a row of an image with which convolutions reach half of their rate."""
    packing: Mapping[str, float]
    """Bytes per second at which convolutions bring operands into the order of vector lanes or tiles: `image`, `weights`, or
    neither."""
    launch_ns: int
    """Between two kernels of a queue."""
    submit_ns: int
    """Host time to write one command."""
    replay_ns: int
    """Host time per kernel that is submitted again as a part of a recorded command buffer."""
    sync_ns: int
    """Between the end of a command and the moment when the waiting host continues."""
    watchdog_ns: int
    """After so long without progress the driver gives a command up."""
    link: Link
    """To the host."""
    peer_link: Link
    """To the other devices of the machine."""
    dma_engines: int
    """Transfers that can run at once, beside kernels."""
    unified_memory: bool
    """Whether device and host share their memory."""

    def flops_per_second(self, dtype: DType, family: str) -> float:
        """Return the rate at which kernels of a family compute in a dtype.

        `FAMILY_DTYPE` comes before `FAMILY`. A family of several words, as `strided_convolution`, falls back to the one without
        the first of them, and the last to `default`. Kernels without products convert half precision to float32.
        """
        families = _families(family)
        names = [name for f in families for name in (f"{f}_{dtype.name}", f)]
        share = next((self.efficiency[name] for name in names if name in self.efficiency), self.efficiency["default"])
        is_converted = dtype.itemsize < float32.itemsize and families[-1] not in _PRODUCTS
        return self.peak.get("float32" if is_converted else dtype.name, self.peak["float32"]) * share

    def latency_of(self, family: str) -> float:
        """Return the seconds that kernels of a family take at least, besides launches. Families fall back as for rates."""
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
            "link": self.link.kind,
            "link_bandwidth": self.link.bandwidth,
            "link_latency_ns": self.link.latency_ns,
            "peer_link": self.peer_link.kind,
            "peer_bandwidth": self.peer_link.bandwidth,
            "peer_latency_ns": self.peer_link.latency_ns,
            "dma_engines": self.dma_engines,
            "unified_memory": self.unified_memory,
        }


def _families(family: str) -> list[str]:
    """The names under which a profile may state a figure of a family, the closest first."""
    words = family.split("_")
    return ["_".join(words[i:]) for i in range(len(words))]


def profile_names() -> list[str]:
    """Return the names of all profiles."""
    files = resources.files(_PACKAGE).iterdir()
    return sorted(f.name.removesuffix(SUFFIX) for f in files if f.name.endswith(SUFFIX))


def load_profile(name: str) -> DeviceProfile:
    """Read a profile: one of `profile_names`, or a file of one's own, whose path ends in `.toml`.

    Raises ValueError for a name that no file has, and for a file that cannot be read or is no profile.
    """
    return _read_file(name) if name.endswith(SUFFIX) else _load_shipped(name)


@functools.cache
def _load_shipped(name: str) -> DeviceProfile:
    if name not in profile_names():
        expected = f"one of {', '.join(profile_names())}, or the path of a {SUFFIX} file"
        raise ValueError(f"no simulated device is called {name!r}; expected {expected}")
    return _parse(name, resources.files(_PACKAGE).joinpath(f"{name}{SUFFIX}").read_text(encoding="utf-8"))


def _read_file(path: str) -> DeviceProfile:
    try:
        return _parse(path, Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(f"the profile {path} cannot be read: {reason}") from error


def _parse(name: str, text: str) -> DeviceProfile:
    """Read the text of a profile. Raises ValueError that says what is wrong with it."""
    try:
        tables = toml.parse(text)
        check(tables)
        return _profile(name, tables)
    except ValueError as error:
        raise ValueError(f"{name} is no profile: {error}") from error


def _profile(name: str, tables: Mapping[str, Any]) -> DeviceProfile:
    device, driver, link, shapes = tables["device"], tables["driver"], tables["link"], tables.get("shapes", {})
    cache = tables.get("cache", {})
    return DeviceProfile(
        name=name,
        title=device["title"],
        type=DeviceType(device["type"]),
        compute_units=device["compute_units"],
        clock_mhz=device["clock_mhz"],
        memory=int(device["memory_gib"] * _GIB),
        max_allocation=int(device["max_allocation_gib"] * _GIB),
        local_memory=device["local_memory_kib"] << 10,
        bandwidth=device["bandwidth_gb_s"] * 1e9,
        peak={dtype: rate * 1e12 for dtype, rate in tables["peak_tflop_s"].items()},
        efficiency=dict(tables["efficiency"]),
        latency={family: us * 1e-6 for family, us in tables.get("latency_us", {}).items()},
        cache=int(cache.get("size_mib", 0) * (1 << 20)),
        cache_bandwidth=cache.get("bandwidth_gb_s", 0) * 1e9,
        tile_outputs=shapes.get("tile_outputs", {}),
        split_depth=shapes.get("split_depth", 1),
        sliced_flops=shapes.get("sliced_flops", {}),
        fill_depth=shapes.get("fill_depth", {}),
        half_row=shapes.get("half_row", 0.0),
        packing={operand: rate * 1e9 for operand, rate in shapes.get("packing_gb_s", {}).items()},
        launch_ns=_nanoseconds(driver["launch_us"]),
        submit_ns=_nanoseconds(driver["submit_us"]),
        replay_ns=_nanoseconds(driver.get("replay_us", 0.0)),
        sync_ns=_nanoseconds(driver["sync_us"]),
        watchdog_ns=_nanoseconds(driver["watchdog_s"] * 1e6),
        link=_link(link),
        peer_link=_link(tables.get("peer_link", link)),
        dma_engines=link["dma_engines"],
        unified_memory=link["unified_memory"],
    )


def _link(table: Mapping[str, Any]) -> Link:
    return Link(table["kind"], table["bandwidth_gb_s"] * 1e9, _nanoseconds(table["latency_us"]))


def _nanoseconds(microseconds: float) -> int:
    return round(microseconds * 1000)
