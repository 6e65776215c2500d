"""Tests of models take turns on the NumPy devices, whose kernels are NumPy's functions, and run on all others."""

from __future__ import annotations

from pathlib import Path

import pytest
from devices import NUMPY, TEST_DEVICES, shares
from rotation import rotate


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    devices = [d for d in TEST_DEVICES if d in NUMPY]
    rotate(config, items, Path(__file__).parent, "device", devices, devices, shares(devices), whole_tests=True)
