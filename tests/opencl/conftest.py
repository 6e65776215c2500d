"""The OpenCL devices under test."""

from __future__ import annotations

import os
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from native_harness import Harness
from rotation import rotate

from polyhal.backends.opencl import discovery
from polyhal.backends.opencl.backend import OpenCLBackend


def _devices() -> list[discovery.OpenCLDevice]:
    try:
        return discovery.devices()
    except RuntimeError:
        return []


_FOUND = _devices()
_IDS = [f"{f.info.selector}-{f.platform.split('(')[0].split()[0].lower()}" for f in _FOUND]

_POCL = [found for found, name in zip(_FOUND, _IDS, strict=True) if "portable" in name]
_SHARES = [1 if found in _POCL else 24 for found in _FOUND]
"""Weights of the devices: PoCL takes eight times as long as other drivers to compile a kernel."""
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
    return Harness(OpenCLBackend(found), partial(OpenCLBackend, found))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
