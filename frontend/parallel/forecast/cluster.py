"""The machines of a plan: nodes with devices of one kind, links inside each, and network ports between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from polyhal.hal.device import Device
from polyhal.hal.discovery.device_list import open_devices
from polyhal.hal.errors import DeviceUnavailableError, message
from polyhal.parallel.forecast.links import LINKS, ClusterLink, parse_link, relay_link

_DEVICES = re.compile(r"(?:(?P<first>\d+)x)?(?:(?P<second>\d+)x)?(?P<device>[A-Za-z_].*)")
_PORTS = re.compile(r"(?:(?P<ports>\d+)x)?(?P<link>.+)")
_PER_NODE = 8
"""Devices of a node, unless it is said."""
_NETWORK = "infiniband-ndr"
"""The network of a node, unless it is said: a port for each device, as in NVIDIA's DGX H200."""
_UNBOUNDED = "64TiB"
"""Memory of the device on which steps are captured, so that a step is captured even where it does not fit."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices of one kind. Numbers run through a node before the next one begins."""

    device: str
    """The profile of a simulated device, or the name of one of this machine."""
    devices: int
    per_node: int
    memory: int
    """Bytes of each device."""
    peak: dict[str, float]
    """Operations per second of each device, by dtype; empty if they are not known."""
    inside: ClusterLink
    """Between two devices of a node; each has one."""
    between: ClusterLink
    """One port of a node's network."""
    ports: int
    """Ports of each node, which its devices share."""
    tracer: str = field(default="", compare=False)
    """The device on which steps are captured."""

    @property
    def nodes(self) -> int:
        """Nodes that are used."""
        return -(-self.devices // self.per_node)

    @property
    def used_per_node(self) -> int:
        """Devices that are used of each node."""
        return min(self.devices, self.per_node)

    @property
    def port_share(self) -> float:
        """Bytes per second between nodes that each device has while all use the network: at most its own ports."""
        own = max(1.0, self.ports / self.per_node)
        return self.between.bandwidth * min(own, self.ports / self.used_per_node)

    def of(self, devices: int) -> Cluster:
        """The same nodes with another number of devices in use."""
        return replace(self, devices=devices)

    def open(self) -> Device:
        """A device of this kind: a simulated one predicts times, computes nothing and has more memory than any."""
        return Device(self.tracer)

    def __str__(self) -> str:
        one = f"{self.devices} {self.device}{' devices' if self.devices > 1 else ''}"
        inside = f"{self.inside} inside a node"
        if self.nodes == 1:
            return one if self.devices == 1 else f"{one}, {inside}"
        return f"{one} in {self.nodes} nodes of {self.per_node}, {inside}, {self.ports} x {self.between} between nodes"


class _Kind(NamedTuple):
    """What is known of a device."""

    name: str
    memory: int
    peak: dict[str, float]
    link: ClusterLink
    tracer: str


def parse_cluster(devices: str, link: str = "") -> Cluster:
    """Read devices such as `1024xh200`, or `128x8xh200` for nodes of 8, and links such as `nvlink4,8xinfiniband-ndr`.

    A device is a simulated one, or one of this machine, such as `2xopencl:0`, whose times are measured. Links are that inside
    a node and, after a comma, the ports of a node. Raises ValueError that says what is known.
    """
    match = _DEVICES.fullmatch(devices.strip())
    counts = [int(match[name]) for name in ("first", "second") if match[name]] if match else [0]
    if match is None or not all(counts):
        expected = "NUMBERxDEVICE or NODESxNUMBERxDEVICE, such as 1024xh200 or 128x8xh200"
        raise ValueError(message(None, f"{devices!r} names no devices", expected=expected))
    kind, several = _find(match["device"].strip())
    total = several * (counts[0] if counts else 1)
    per_node = several if several > 1 else _PER_NODE
    if len(counts) == 2:
        total, per_node = counts[0] * counts[1], counts[1]
    if total > per_node and total % per_node:
        expected = f"whole nodes, as in {total // per_node + 1}x{per_node}x{kind.name}"
        raise ValueError(message(None, f"{total} devices in nodes of {per_node}", expected=expected))
    inside, between, ports = _parse_links(link, kind.link, per_node)
    return Cluster(kind.name, total, per_node, kind.memory, kind.peak, inside, between, ports, kind.tracer)


def _find(name: str) -> tuple[_Kind, int]:
    """A simulated device, or else one of this machine, and how many the name stands for.

    Raises ValueError that lists the simulated ones, or says that devices of this machine differ.
    """
    backend: Any = Device("sim").backend
    known: dict[str, dict[str, Any]] = {p["profile"]: p for p in backend.profiles()}
    profile, _, several = name.lower().removeprefix("sim:").partition("*")
    facts = known.get(profile) if not several or several.isdigit() else None
    if facts is not None:
        link = ClusterLink(facts["peer_link"], facts["peer_bandwidth"], facts["peer_latency_ns"] * 1e-9)
        tracer = f"sim:{facts['profile']},compute=off,memory={_UNBOUNDED}"
        return _Kind(facts["profile"], facts["memory"], facts["peak_flops_per_s"], link, tracer), int(several or 1)
    try:
        devices = open_devices(name)
    except DeviceUnavailableError:
        expected = f"{', '.join(known)}, or a device of `polyhal devices`"
        raise ValueError(message(None, f"no simulated device is called {name!r}", expected=expected)) from None
    device = devices[0]
    if len({d.info.name for d in devices}) > 1:
        expected = f"devices of one kind, or a list such as {','.join(d.name for d in devices)}"
        raise ValueError(message(None, f"{name!r} stands for devices of several kinds", expected=expected))
    return _Kind(device.name, device.info.memory, {}, relay_link(device), device.name), len(devices)


def _parse_links(text: str, own: ClusterLink, per_node: int) -> tuple[ClusterLink, ClusterLink, int]:
    """The link inside a node, a port of the network, and the number of ports."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(parts) > 2:
        expected = "the link inside a node and, after a comma, that between nodes"
        raise ValueError(message(None, f"{len(parts)} links in {text!r}", expected=expected))
    inside = parse_link(parts[0]) if parts and parts[0] else own
    network = _PORTS.fullmatch(parts[1]) if len(parts) == 2 and parts[1] else None
    if network is None:
        return inside, LINKS["ideal"] if inside is LINKS["ideal"] else LINKS[_NETWORK], per_node
    ports = int(network["ports"]) if network["ports"] else per_node
    if not ports:
        raise ValueError(message(None, f"{parts[1]!r} has no ports", expected="1 or more, as in 8xinfiniband-ndr"))
    return inside, parse_link(network["link"]), ports
