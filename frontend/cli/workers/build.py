"""One process of `polyhal prebuild`: python -m polyhal.cli.workers.build DEVICE FOLDER WORKLOAD..."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from polyhal.cli.workers.build_workloads import WORKLOADS
from polyhal.cli.workers.pool import tell
from polyhal.hal.device import Device
from polyhal.hal.discovery.plugins import describe
from polyhal.hal.errors import KernelBuildError
from polyhal.hal.kernels.library import KernelLibrary
from polyhal.hal.kernels.prebuild import Claims, library


def main(name: str, folder: str, workloads: list[str]) -> int:
    """Run workloads on a device, sharing their programs with the processes that use the same folder."""
    device = Device(name)
    kernels = library(device)
    claims, told = Claims(Path(folder)), 0
    failed = False

    def claim(kernel: str, digest: str) -> bool:
        nonlocal told
        told = _report(kernels, told)
        return claims(kernel, digest)

    kernels.claim = claim
    # A kernel that does not build is passed over with a warning, here as in programs.
    warnings.showwarning = lambda message, *rest: tell(warning=str(message))
    for workload in workloads:
        try:
            WORKLOADS[workload](device)
            device.synchronize()
        except KernelBuildError as error:
            failed = True
            tell(workload=workload, problem=f"{str(error).splitlines()[0]}: {error.gist}")
        except Exception as error:  # the other workloads can still be prepared; the command tells
            failed = True
            tell(workload=workload, problem=describe(error))
    _report(kernels, told)
    return int(failed)


def _report(kernels: KernelLibrary, told: int) -> int:
    """Tell of the programs that were got ready since; returns how many there are."""
    for built in kernels.built[told:]:
        tell(kernel=built.kernel, seconds=built.seconds, compiled=built.compiled)
    return len(kernels.built)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
