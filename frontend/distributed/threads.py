"""Thread counts of CPU libraries in each rank of a machine."""

from __future__ import annotations

import os

_COUNTS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "POCL_MAX_PTHREAD_COUNT",
    "POCL_CPU_MAX_CU_COUNT",
    "CL_CONFIG_CPU_TBB_NUM_WORKERS",
)


def variables(ranks: int) -> dict[str, str]:
    """Return environment variables for `ranks` processes on this machine, each with its part of the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = dict.fromkeys(_COUNTS, str(max(1, cores // ranks)))
    # With thread affinity, the threads of all ranks would run on the first cores.
    return counts | ({"POCL_AFFINITY": "0"} if ranks > 1 else {})
