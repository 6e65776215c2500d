"""The device under test, where CuPy finds one."""

from __future__ import annotations

import pytest
from polyhal_cupy.discovery import probe

from polyhal.hal.testing.plugin import DEVICES


def missing() -> str:
    """Why there is no CUDA device here; empty where there is one."""
    try:
        probe()
    except RuntimeError as error:
        return str(error)
    return ""


def pytest_configure(config: pytest.Config) -> None:
    """Have the conformance kit check the first CUDA device where the command line names no other."""
    config.stash[DEVICES] = ["cuda"]
