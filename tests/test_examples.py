"""The example programs run and reach their target accuracy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from devices import PARITY_DEVICES

import polyhal as ph

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["digits_mlp.py", "digits_cnn.py"])
def test_digits(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), "--device", "numpy"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test accuracy 9" in done.stdout


def test_missed_target_is_an_error() -> None:
    command = [sys.executable, str(EXAMPLES / "digits_mlp.py"), "--device", "numpy", "--epochs", "1"]
    assert subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 1


def test_quickstart(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "quickstart.py")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "sin(1) is about 0.8" in done.stdout
    assert "0.weight" in ph.load(tmp_path / "sine.safetensors", "numpy")["model"]


def test_custom_kernel() -> None:
    for device in [d for d in PARITY_DEVICES if d != "numpy:contiguous_only"]:
        command = [sys.executable, str(EXAMPLES / "custom_kernel.py"), "--device", device]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert "from the op's own source" in done.stdout
        assert "squared error below 0.001: True" in done.stdout, done.stdout


def test_custom_op() -> None:
    for device in ["numpy", *[d for d in PARITY_DEVICES if d.startswith("opencl")]][:2]:
        command = [sys.executable, str(EXAMPLES / "custom_op.py"), "--device", device]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert "checks passed" in done.stdout
        assert "squared error below 0.001: True" in done.stdout, done.stdout
