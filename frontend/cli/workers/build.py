"""A worker of `polyhal prebuild`: runs workloads to build their kernels, divided among several workers.

Usage: python -m polyhal.cli.workers.build DEVICE FOLDER WORKLOAD... Workers with the same FOLDER never build a program twice.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from polyhal.cli.workers.build_workloads import all_workloads
from polyhal.cli.workers.pool import send
from polyhal.hal.core.kernels.library import KernelLibrary
from polyhal.hal.core.kernels.prebuild import BuildClaims, library
from polyhal.hal.core.plugins.entry_points import describe
from polyhal.hal.device import Device
from polyhal.hal.errors import KernelBuildError


def main(name: str, folder: str, workloads: list[str]) -> int:
    """Run workloads on a device and send every program that was built. Returns the exit code."""
    device = Device(name)
    kernels = library(device)
    claims, sent = BuildClaims(Path(folder)), 0
    failed = False

    def claim(kernel: str, digest: str) -> bool:
        nonlocal sent
        sent = _send_built(kernels, sent)
        return claims(kernel, digest)

    kernels.build_filter = claim
    # A kernel that does not build is skipped with a warning, as in programs.
    warnings.showwarning = lambda message, *rest: send(warning=str(message))
    for workload in workloads:
        try:
            all_workloads()[workload](device)
            device.synchronize()
        except KernelBuildError as error:
            failed = True
            send(workload=workload, problem=f"{str(error).splitlines()[0]}: {error.gist}")
        except Exception as error:  # the other workloads can still be built
            failed = True
            send(workload=workload, problem=describe(error))
    _send_built(kernels, sent)
    return int(failed)


def _send_built(kernels: KernelLibrary, sent: int) -> int:
    """Send the programs built after the first `sent`. Returns the new number of programs sent."""
    for built in kernels.program_builds[sent:]:
        send(kernel=built.kernel, seconds=built.seconds, compiled=built.compiled)
    return len(kernels.program_builds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
