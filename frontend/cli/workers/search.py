"""The process in which `polyhal tune` searches: python -m polyhal.cli.workers.search REQUEST, which is JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from polyhal.cli.workers.pool import tell
from polyhal.hal.device import Device
from polyhal.hal.discovery.plugins import describe
from polyhal.hal.testing.tools.tuning import Refused, Trial, search


def main(request: dict[str, Any]) -> int:
    """Search as asked and tell of every event. Returns the exit code."""
    done = {(family, shape) for family, shape in request["done"]}
    skip = {((family, shape), tuple(sorted(values.items()))) for (family, shape), values in request["skip"]}
    try:
        for event in search(Device(request["device"]), request["budget"], request["only"], done, skip):
            if isinstance(event, Trial):
                tell(event="trial", key=event.key, values=event.values)
            elif isinstance(event, Refused):
                tell(event="refused", key=event.key, values=event.values, problem=event.problem)
            else:
                tell(event="result", **asdict(event))
    except Exception as error:  # drivers raise anything; the command tells
        tell(event="failed", problem=describe(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
