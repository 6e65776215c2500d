"""The device under test."""

import pytest

from polyhal.hal.testing.plugin import DEVICES


def pytest_configure(config: pytest.Config) -> None:
    """Have the conformance kit check this backend's device where the command line names no other."""
    config.stash[DEVICES] = ["tiny"]
