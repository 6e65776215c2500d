"""scikit-learn and SciPy on tensors, in a process of its own: SciPy reads its setting when it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_functions_of_libraries_agree_with_numpy() -> None:
    pytest.importorskip("sklearn")
    command = [sys.executable, "-m", "tests.array_api.consumers", "numpy"]
    done = subprocess.run(
        command, env=os.environ | {"SCIPY_ARRAY_API": "1"}, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
