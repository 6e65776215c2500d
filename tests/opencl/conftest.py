"""The OpenCL devices under test."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from native_devices import opencl_devices
from native_harness import Harness
from rotation import rotate

from polyhal.backends.opencl import discovery

_DEVICES = opencl_devices()
_FOUND = [device.found for device in _DEVICES]
_IDS = [device.id for device in _DEVICES]
_SHARES = [device.share for device in _DEVICES]
_POCL = [found for found, name in zip(_FOUND, _IDS, strict=True) if "portable" in name]
_FOR_GPUS = ("_gpu.py", "_conv_tiles.py", "_conv_wgmma.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rotate(config, items, Path(__file__).parent, "found", _FOUND, _IDS, _SHARES)
    if len(_FOUND) > len(_POCL) and not os.environ.get("POLYHAL_TEST_ALL"):
        _keep_few(config, items)


def _keep_few(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let PoCL run one in eight of the tests of GPU kernels: it never uses these kernels."""
    kept, dropped = [], []
    for item in items:
        spec = getattr(item, "callspec", None)
        few = item.path.name.endswith(_FOR_GPUS) and spec is not None and spec.params.get("found") in _POCL
        (dropped if few and zlib.crc32(item.nodeid.encode()) % 8 else kept).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture(params=_FOUND, ids=_IDS, scope="session")
def found(request: pytest.FixtureRequest) -> discovery.OpenCLDevice:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def any_device() -> discovery.OpenCLDevice:
    """Return the device whose driver compiles fastest."""
    if not _FOUND:
        pytest.skip("no OpenCL device is available")
    return next((found for found in _FOUND if found not in _POCL), _FOUND[0])


@pytest.fixture(params=_POCL, ids=["pocl" for _ in _POCL], scope="session")
def pocl(request: pytest.FixtureRequest) -> discovery.OpenCLDevice:
    """Return PoCL's device, for kernels of two devices that wait for each other.

    Threads of Intel's runtime start other kernels while they wait for their own, which may deadlock.
    """
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def device(found: discovery.OpenCLDevice) -> Harness:
    return _DEVICES[_FOUND.index(found)].harness


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
