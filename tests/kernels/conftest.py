"""Kernel tests of all native backends: each case runs on one device of every backend."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from native_devices import NativeDevice, opencl_devices, other_devices, wgpu_devices
from native_harness import Harness
from rotation import rotate

_DEVICES = [*opencl_devices(), *wgpu_devices(), *other_devices()]
_IDS = [f"{device.backend}-{device.id}" for device in _DEVICES]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kernels_of(*ops): run the test on backends with kernels for all of these ops")
    config.addinivalue_line(
        "markers", "only_on(backend): run the case on one backend: others decline it or compile long"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _keep_supporting_backends(config, items)
    for _, group in groupby(zip(_DEVICES, _IDS, strict=True), lambda pair: pair[0].backend):
        devices, ids = zip(*group, strict=True)
        rotate(config, items, Path(__file__).parent, "native", devices, ids, [device.share for device in devices])


def _keep_supporting_backends(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests on backends without the kernels that they are marked with."""
    kept, dropped = [], []
    for item in items:
        spec = getattr(item, "callspec", None)
        native = spec.params.get("native") if spec is not None else None
        (kept if native is None or _supports(native, item) else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _supports(native: NativeDevice, item: pytest.Item) -> bool:
    needed, only = item.get_closest_marker("kernels_of"), item.get_closest_marker("only_on")
    has_kernels = needed is None or native.ops is None or set(needed.args) <= native.ops
    return has_kernels and (only is None or native.backend in only.args)


@pytest.fixture(params=_DEVICES, ids=_IDS, scope="session")
def native(request: pytest.FixtureRequest) -> NativeDevice:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def device(native: NativeDevice) -> Harness:
    return native.harness


@pytest.fixture(autouse=True)
def _dtype_is_stored(request: pytest.FixtureRequest) -> None:
    """Skip cases of a `dtype` that the device does not store."""
    spec = getattr(request.node, "callspec", None)
    if spec is not None and {"native", "dtype"} <= spec.params.keys():
        dtype = spec.params["dtype"]
        if not request.getfixturevalue("device").stores(dtype):
            pytest.skip(f"the device does not store {dtype.name}")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
