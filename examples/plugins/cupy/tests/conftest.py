"""The device under test: the first CUDA device, or a stand-in on NumPy if CuPy is not installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from polyhal_cupy.discovery import probe

from polyhal.hal.testing.plugin import DEVICES

STAND_IN = importlib.util.find_spec("cupy") is None
if STAND_IN:
    sys.path.insert(0, str(Path(__file__).with_name("stand_in")))


def missing() -> str:
    """Return the reason why there is no CUDA device; empty if there is one."""
    try:
        probe()
    except RuntimeError as error:
        return str(error)
    return ""


def pytest_report_header() -> str:
    """Say which library the tests use."""
    return "CuPy is not installed: NumPy stands in for it" if STAND_IN else "device: CuPy's first"


def pytest_configure(config: pytest.Config) -> None:
    """Make the conformance kit check the first CUDA device unless the command line names others."""
    config.stash[DEVICES] = ["cupy"]
