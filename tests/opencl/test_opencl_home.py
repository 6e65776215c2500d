"""Devices work for users without a writable home folder, as in many containers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import polyhal
print(polyhal.ones((2, 2), device="opencl").exp().sum().item())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no folder can be made in /proc")
@pytest.mark.usefixtures("any_device")
def test_a_home_folder_that_does_not_exist(tmp_path: Path) -> None:
    hidden = ("XDG_CACHE_HOME", "PYOPENCL_NO_CACHE", "POLYHAL_DEVICE")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    environment |= {"HOME": "/proc/absent", "POCL_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr == ""
    assert float(done.stdout) == pytest.approx(4 * 2.718281828, rel=1e-5)
