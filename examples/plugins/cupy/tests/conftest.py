"""The device under test, if CuPy finds one."""

from __future__ import annotations

import pytest
from polyhal_cupy.discovery import probe

from polyhal.hal.testing.plugin import DEVICES


def missing() -> str:
    """Return the reason why there is no CUDA device; empty if there is one."""
    try:
        probe()
    except RuntimeError as error:
        return str(error)
    return ""


def pytest_configure(config: pytest.Config) -> None:
    """Make the conformance kit check the first CUDA device unless the command line names others."""
    config.stash[DEVICES] = ["cuda"]
