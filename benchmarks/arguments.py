"""Arguments that all benchmarks share, and the devices that they select."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from polyhal import Device
from polyhal.hal.system.discovery.registry import registry


def make_parser(name: str, description: str | None, devices: str = "") -> argparse.ArgumentParser:
    """Return a parser with --devices and --json. `devices` is the default of --devices; empty for all devices."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    help_text = f"comma-separated device names; default: {devices or 'all devices that support it'}"
    parser.add_argument("--devices", default=devices, metavar="NAMES", help=help_text)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    return parser


def open_devices(names: str, supports: Callable[[Device], bool] = lambda device: True) -> list[Device]:
    """Open the devices in a comma-separated list, or all devices. Devices that `supports` rejects are
    skipped with a message.

    Raises PolyhalError for an unknown device.
    """
    chosen = names.split(",") if names else [c.name for c in registry().candidates()]
    opened = [Device(name) for name in chosen]
    supported = [device for device in opened if supports(device)]
    for device in opened:
        if device not in supported:
            print(f"{device.name} is skipped: it does not support what is measured here")
    return supported


def choices(text: str, known: tuple[str, ...]) -> list[str]:
    """Return an argparse type: a comma-separated list of names from `known`."""
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; expected any of {', '.join(known)}")
    return names
