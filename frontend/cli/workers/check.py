"""The process in which `polyhal kernels check` tries a changed kernel: python -m polyhal.cli.workers.check DEVICE FILE."""

from __future__ import annotations

import sys
from dataclasses import asdict

from polyhal.cli.workers.pool import tell
from polyhal.hal.device import Device
from polyhal.hal.discovery.plugins import describe
from polyhal.hal.testing.tools.kernel_check import check


def main(device: str, name: str) -> int:
    """Check one file and tell what was found. Returns the exit code."""
    try:
        found = check(Device(device), name, lambda outcome: tell(ran=outcome.id))
        tell(**asdict(found), ratio=found.ratio)
    except Exception as error:  # a changed kernel can make a driver raise anything; the command tells
        tell(problem=describe(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
