"""Result files: JSON with medians and quartiles, and with the machine and date of the measurement."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polyhal
from polyhal import Device
from polyhal.hal.core.settings import json_store
from polyhal.hal.system.discovery import processor


def describe_machine(devices: Sequence[Device]) -> dict[str, Any]:
    """Return date, processor, and the devices with their drivers."""
    return {
        "date": datetime.date.today().isoformat(),
        "polyhal": polyhal.__version__,
        "processor": processor.model(),
        "cores": os.cpu_count(),
        "devices": {d.name: {"name": d.info.name, "driver": d.info.driver, "type": d.type.value} for d in devices},
    }


def write(path: Path | None, result: Mapping[str, Any]) -> None:
    """Write a result file; nothing if `path` is None."""
    if path is not None:
        path.write_text(json_store.text_of(result), encoding="utf-8")
