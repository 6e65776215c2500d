"""The worker of `polyhal kernels check`: checks one changed kernel.

Usage: python -m polyhal.cli.workers.check DEVICE FILE
"""

from __future__ import annotations

import sys
from dataclasses import asdict

from polyhal.cli.workers.pool import send
from polyhal.hal.core.plugins.entry_points import describe
from polyhal.hal.device import Device
from polyhal.hal.testing.tuning.kernel_check import check


def main(device: str, name: str) -> int:
    """Check one file and send the result. Returns the exit code."""
    try:
        result = check(Device(device), name, lambda outcome: send(ran=outcome.id))
        send(**asdict(result), ratio=result.ratio)
    except Exception as error:  # a changed kernel can make a driver raise arbitrary errors
        send(problem=describe(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
