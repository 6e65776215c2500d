"""The machines of a plan: nodes with devices of one kind, links within each node, and network ports between nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from polyhal import Device
from polyhal.devices import IDEAL, Link, is_card, load_profile, open_devices, profile_names, standard_links
from polyhal.forecast.links import parse_link, relay_link
from polyhal.hal.errors import DeviceUnavailableError, message

_DEVICES = re.compile(r"(?:(?P<first>\d+)x)?(?:(?P<second>\d+)x)?(?P<device>[A-Za-z_].*)")
_PORTS = re.compile(r"(?:(?P<ports>\d+)x)?(?P<link>.+)")
_PER_NODE = 8
"""Default number of devices per node."""
_NETWORK = "infiniband-ndr"
"""Default network of a node: one port per device, as in NVIDIA's DGX H200."""
_UNBOUNDED = "64TiB"
"""Memory of the device on which steps are captured: large enough to capture steps that do not fit the real device."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices of one kind, numbered node by node."""

    device: str
    """Profile of a simulated device, or name of a device of this machine."""
    devices: int
    per_node: int
    memory: int
    """Bytes of memory per device."""
    peak: dict[str, float]
    """Peak operations per second of each device, by dtype; empty if unknown."""
    inside: Link
    """Link between two devices of a node; each device has one."""
    between: Link
    """One port of a node's network."""
    ports: int
    """Ports of each node, shared by its devices."""
    tracer: str = field(default="", compare=False)
    """Device on which steps are captured."""

    @property
    def nodes(self) -> int:
        """Number of nodes in use."""
        return -(-self.devices // self.per_node)

    @property
    def used_per_node(self) -> int:
        """Number of devices in use per node."""
        return min(self.devices, self.per_node)

    @property
    def port_share(self) -> float:
        """Bytes per second between nodes for each device while all use the network: at most the bandwidth of its own ports."""
        own = max(1.0, self.ports / self.per_node)
        return self.between.bandwidth * min(own, self.ports / self.used_per_node)

    def of(self, devices: int) -> Cluster:
        """Return the cluster with another number of devices in use."""
        return replace(self, devices=devices)

    def open(self) -> Device:
        """Open the device on which steps are captured: a simulated one predicts times and computes nothing."""
        return Device(self.tracer)

    def __str__(self) -> str:
        one = f"{self.devices} {self.device}{' devices' if self.devices > 1 else ''}"
        inside = f"{self.inside} inside a node"
        if self.nodes == 1:
            return one if self.devices == 1 else f"{one}, {inside}"
        return f"{one} in {self.nodes} nodes of {self.per_node}, {inside}, {self.ports} x {self.between} between nodes"


class _Kind(NamedTuple):
    """Properties of a kind of device."""

    name: str
    memory: int
    peak: dict[str, float]
    link: Link
    tracer: str


def parse_cluster(devices: str, link: str = "") -> Cluster:
    """Read devices such as `1024xh200`, or `128x8xh200` for nodes of 8, and links such as `nvlink4,8xinfiniband-ndr`.

    A device is a simulated one, or one of this machine, such as `2xopencl:0`, whose times are measured. `link` names the link
    within a node and, after a comma, the ports of a node. Raises ValueError that lists the known names.
    """
    match = _DEVICES.fullmatch(devices.strip())
    counts = [int(match[name]) for name in ("first", "second") if match[name]] if match else [0]
    if match is None or not all(counts):
        expected = "NUMBERxDEVICE or NODESxNUMBERxDEVICE, such as 1024xh200 or 128x8xh200"
        raise ValueError(message(None, f"invalid devices {devices!r}", expected=expected))
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
    """Find a simulated device, or else one of this machine, and return it with the number of devices that the name covers.

    Raises ValueError that lists the simulated devices, or says that devices of this machine differ.
    """
    card, _, several = name.lower().removeprefix("sim:").partition("*")
    if is_card(card) and (not several or several.isdigit()):
        figures = load_profile(card)
        tracer = f"sim:{figures.name},compute=off,memory={_UNBOUNDED}"
        return _Kind(figures.name, figures.memory, dict(figures.peak), figures.peer_link, tracer), int(several or 1)
    try:
        devices = open_devices(name)
    except DeviceUnavailableError:
        expected = f"{', '.join(profile_names())}, or a device of `polyhal devices`"
        raise ValueError(message(None, f"unknown card {name!r}", expected=expected)) from None
    device = devices[0]
    if len({d.info.name for d in devices}) > 1:
        expected = f"devices of one kind, or a list such as {','.join(d.name for d in devices)}"
        raise ValueError(message(None, f"{name!r} matches devices of several kinds", expected=expected))
    return _Kind(device.name, device.info.memory, {}, relay_link(device), device.name), len(devices)


def _parse_links(text: str, own: Link, per_node: int) -> tuple[Link, Link, int]:
    """Return the link inside a node, a port of the network, and the number of ports."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(parts) > 2:
        expected = "the link within a node and, after a comma, the link between nodes"
        raise ValueError(message(None, f"{len(parts)} links in {text!r}", expected=expected))
    inside = parse_link(parts[0]) if parts and parts[0] else own
    network = _PORTS.fullmatch(parts[1]) if len(parts) == 2 and parts[1] else None
    if network is None:
        return inside, IDEAL if inside is IDEAL else standard_links()[_NETWORK], per_node
    ports = int(network["ports"]) if network["ports"] else per_node
    if not ports:
        raise ValueError(message(None, f"{parts[1]!r} has no ports", expected="1 or more, as in 8xinfiniband-ndr"))
    return inside, parse_link(network["link"]), ports
