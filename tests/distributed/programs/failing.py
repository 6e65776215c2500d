"""Ends rank 1 in the middle of collectives, in the requested way: `failing.py WAY`."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import numpy as np

from polyhal import distributed

group = distributed.init()
print(f"process {os.getpid()}", flush=True)
mapped = (
    re.findall(r"/dev/shm/mpich_shm_\w+", Path("/proc/self/maps").read_text())
    if Path("/proc/self/maps").exists()
    else []
)
group.barrier()
if any(Path(name).exists() for name in mapped):
    print("shared memory is named, and would be left by a job that is killed", flush=True)
values = np.ones(1000, np.float32)
for step in range(1_000_000):
    group.all_reduce(values, "max")
    if group.rank == 1 and step == 20:
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[1] == "aborts":
            os.abort()
        if sys.argv[1] == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if sys.argv[1] == "raises":
            raise ValueError("the data are bad")
        if sys.argv[1] == "exits":
            sys.exit(7)
        if sys.argv[1] == "done":
            break
