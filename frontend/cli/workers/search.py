"""The worker of `polyhal tune`: searches for faster settings of kernels.

Usage: python -m polyhal.cli.workers.search REQUEST, a JSON object with the keys device, budget, only, done and skip.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from polyhal.cli.workers.pool import send
from polyhal.hal.core.plugins.entry_points import describe
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError
from polyhal.hal.testing.tuning.search import CandidateTrial, RejectedCandidate, search


def main(request: dict[str, Any]) -> int:
    """Search as requested and send every event. Returns the exit code."""
    done = {(family, shape) for family, shape in request["done"]}
    skip = {((family, shape), tuple(sorted(values.items()))) for (family, shape), values in request["skip"]}
    try:
        for event in search(Device(request["device"]), request["budget"], request["only"], done, skip):
            if isinstance(event, CandidateTrial):
                send(event="trial", key=event.key, values=event.values)
            elif isinstance(event, RejectedCandidate):
                send(event="refused", key=event.key, values=event.values, problem=event.problem)
            else:
                send(event="result", **asdict(event))
    except Exception as error:  # drivers raise arbitrary errors
        # The message of an invalid input is a sentence; other errors need the name of their class.
        is_sentence = isinstance(error, (PolyhalError, ValueError))
        send(event="failed", problem=str(error) if is_sentence else describe(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
