"""The tested ops: all ops of this package."""

import pytest

from polyhal.hal.testing.plugin import DEVICES, OPS_UNDER_TEST


def pytest_configure(config: pytest.Config) -> None:
    """Check this package's ops on the reference device unless the command line names others."""
    config.stash[DEVICES] = ["numpy"]
    config.stash[OPS_UNDER_TEST] = ["polyhal-gates"]
