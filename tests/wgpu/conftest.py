"""The wgpu devices under test: each physical device through every API that supports it, and with GPU kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from native_devices import NativeDevice, wgpu_devices
from native_harness import Harness
from rotation import rotate

from polyhal.backends.wgpu import discovery

_DEVICES = wgpu_devices()
_IDS = [device.id for device in _DEVICES]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rotate(config, items, Path(__file__).parent, "native", _DEVICES, _IDS)


@pytest.fixture(params=_DEVICES, ids=_IDS, scope="session")
def native(request: pytest.FixtureRequest) -> NativeDevice:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def device(native: NativeDevice) -> Harness:
    return native.harness


@pytest.fixture(scope="session")
def found() -> discovery.WGPUAdapter:
    """Return the best device, for tests that open it with their own options."""
    if not _DEVICES:
        pytest.skip("wgpu finds no adapter")
    return _DEVICES[0].found  # type: ignore[no-any-return]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
