"""Lists of devices: parsing of a text such as `opencl:0,opencl:1`, `sim:h200*4`, `gpu*` or `all` to open devices.

A backend's own selectors may expand to several devices (`BackendSpec.expand`). Names of devices of several backends,
and commas, are parsed here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.plugins.probing import hardware_type, resolve
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError, message
from polyhal.hal.system.discovery.ranking import group_by_card
from polyhal.hal.system.discovery.registry import registry

_EVERY = re.compile(r"(?P<kind>[^:*,]+)\*(?P<count>\d*)")
_OPTION = re.compile(r"\w+=")
_FORMS = '"opencl:0,opencl:1", "sim:h200*4", "opencl:pocl/2", "gpu*", "opencl*" or "all"'


def open_devices(devices: str | Device | Sequence[str | Device]) -> tuple[Device, ...]:
    """Open the devices of a list: a text, a device, or a sequence of both.

    In a text, names are separated by commas; options of a name, such as the one in "sim:h200*4,memory=1GiB", stay with
    it. A name with a count expands to that many devices: "sim:h200*4", "opencl:pocl/2". "gpu*" is every graphics card,
    "gpu*2" the first two, "opencl*" every device of a backend, and "all" every card, and the best device of the
    processor.

    Raises DeviceUnavailableError, and ValueError for an empty list or a device that occurs twice.
    """
    opened: dict[Device, str] = {}
    for item in [devices] if isinstance(devices, str | Device) else devices:
        for name in split_names(item) if isinstance(item, str) else [item.name]:
            for part in expand(name) if isinstance(item, str) else [name]:
                device = registry().open(part) if isinstance(item, str) else item
                if device in opened:
                    names = " and ".join(dict.fromkeys([opened[device], part]))
                    raise ValueError(message(None, f"{device} occurs twice, as {names}", expected="each device once"))
                opened[device] = part
    if not opened:
        raise ValueError(message(None, f"{devices!r} does not name a device", expected=_FORMS))
    return tuple(opened)


def split_names(text: str) -> list[str]:
    """Return the names in a comma-separated list. A piece such as `memory=1GiB` is an option of the name before it."""
    names: list[str] = []
    for piece in map(str.strip, text.split(",")):
        if names and _OPTION.match(piece):
            names[-1] += f",{piece}"
        elif piece:
            names.append(piece)
    return names


def expand(name: str) -> list[str]:
    """Return the names of all devices that a name expands to. Raises DeviceUnavailableError if there are too few."""
    if name == "all":
        return [*_every("gpu"), *_cards(DeviceType.ACCELERATOR), "cpu"]
    if (match := _EVERY.fullmatch(name)) is None:
        return _parts(name)
    found = _every(match["kind"])
    count = int(match["count"] or max(1, len(found)))
    if not 1 <= count <= len(found):
        missing = f"{name!r} does not match a device: none of the kind {match['kind']!r} was found"
        problem = f"{name!r} names {count} of {len(found)} devices" if found else missing
        raise DeviceUnavailableError(message(None, problem, expected=_FORMS, fix="`polyhal devices` lists all devices"))
    return found[:count]


def _every(kind: str) -> list[str]:
    """Return the names of all devices of a kind or of a backend.

    A processor counts as one device, regardless of the number of its drivers.
    """
    if kind == "cpu":
        return ["cpu"]
    if kind == "gpu":
        return [f"gpu:{i}" for i in range(len(_cards(DeviceType.GPU, DeviceType.INTEGRATED_GPU)))]
    if (spec := registry().backend(kind)) is None:
        known = ", ".join(["gpu", "cpu", *sorted(registry().backends)])
        raise DeviceUnavailableError(message(None, f"unknown backend {kind!r}", expected=f"one of {known}"))
    return [c.name for c in registry().probe(spec.name)]


def _cards(*types: DeviceType) -> list[str]:
    """Return a name for each card of the given types."""
    candidates = [c for c in registry().candidates() if hardware_type(c.info) in types]
    return [group[0].name for group in group_by_card(candidates)]


def _parts(name: str) -> list[str]:
    """Return the names of the devices that a backend-specific name expands to."""
    head, _, selector = name.partition(":")
    spec = registry().backend(head)
    if not selector or spec is None or spec.expand is None:
        return [name]
    try:
        return [f"{head}:{part}" for part in resolve(spec.expand)(selector)]
    except ValueError:  # a selector that the backend cannot parse: opening it raises an error with the alternatives
        return [name]
