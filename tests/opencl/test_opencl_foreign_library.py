"""If another package has loaded a library with the name of one that the OpenCL driver needs, the error explains it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from polyhal.backends.opencl import icd

_COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc/self/maps"),
    pytest.mark.skipif(icd.packaged_library() is None, reason="needs Intel's runtime: pip install 'polyhal[cpu]'"),
    pytest.mark.skipif(_COMPILER is None, reason="needs a C compiler for the other library"),
]

OPEN = """
import ctypes, sys, warnings
ctypes.CDLL(sys.argv[1])  # as the import of a package that bundles it does
import polyhal
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    polyhal.Device.default()
print("\\n".join(str(w.message) for w in caught if issubclass(w.category, UserWarning)))
print("---")
try:
    polyhal.Device("opencl:intel")
except polyhal.hal.errors.DeviceUnavailableError as error:
    print(str(error).splitlines()[0])
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Compile a library with the name of TBB's and none of its functions."""
    path = tmp_path / "libtbb.so.12"
    (tmp_path / "empty.c").write_text("int nothing;\n")
    assert _COMPILER is not None
    build = [_COMPILER, "-shared", "-fPIC", "-Wl,-soname,libtbb.so.12", "-o", path, tmp_path / "empty.c"]
    subprocess.run(build, check=True)
    return path


def test_the_default_comes_with_the_reason_and_the_device_by_name_raises_it(library: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("POLYHAL_DEVICE", "OCL_ICD_VENDORS")}
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(library)],
        capture_output=True,
        text=True,
        env=environment | {"POLYHAL_MEASURE_TIMEOUT": "0", "POLYHAL_DISABLE": "wgpu"},
        timeout=120,
        check=True,
    )
    warned, _, refused = done.stdout.partition("---\n")
    for text in (warned, refused):
        assert "libintelocl.so cannot be loaded: " in text
        assert f"the process has already loaded another libtbb.so.12, {library}" in text
        assert "open a device before the package that brings this library is imported" in text
    assert len(warned.splitlines()) == 1
