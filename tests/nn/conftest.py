"""Cases of layers take turns on the devices: the conformance kit runs their ops on each."""

from __future__ import annotations

from pathlib import Path

import pytest
from devices import TEST_DEVICES
from rotation import rotate


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rotate(config, items, Path(__file__).parent, "device", TEST_DEVICES, TEST_DEVICES)
