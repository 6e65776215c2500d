"""Captured steps run on plain NumPy, which must agree to the last bit, and on the best OpenCL device."""

from __future__ import annotations

import pytest
from devices import TEST_DEVICES

from polyhal.hal.device import Device


@pytest.fixture(params=[d for d in TEST_DEVICES if not d.startswith("numpy:")])
def device(request: pytest.FixtureRequest) -> Device:
    """Each device under test but those that lack something on purpose: these are in tests of their own."""
    return Device(request.param)
