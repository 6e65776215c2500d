"""The device under test."""

import pytest

from polyhal.hal.testing.plugin import DEVICES


def pytest_configure(config: pytest.Config) -> None:
    """Check this backend's device unless the command line names another."""
    config.stash[DEVICES] = ["openvino"]
