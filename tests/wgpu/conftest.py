"""The wgpu devices under test: each physical device through every API that supports it, and with GPU kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from native_harness import Harness
from rotation import rotate

from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import WGPUBackend, open_adapter

_GPU_GROUP = 256


def _devices() -> list[tuple[discovery.WGPUAdapter, bool]]:
    """Return devices, each with a flag to treat it as a GPU, which uses other kernels than a CPU."""
    try:
        found = discovery.devices(every_api=True)
    except RuntimeError:
        return []
    return [*((f, False) for f in found), *((f, True) for f in found[:1] if f.info.type == "cpu")]


def _name(device: tuple[discovery.WGPUAdapter, bool]) -> str:
    found, as_gpu = device
    return f"{found.info.selector}-{found.api.lower()}{'-as-gpu' if as_gpu else ''}"


_DEVICES = _devices()
_IDS = [_name(d) for d in _DEVICES]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rotate(config, items, Path(__file__).parent, "device", _DEVICES, _IDS)


@pytest.fixture(params=_DEVICES, ids=_IDS, scope="session")
def device(request: pytest.FixtureRequest) -> Harness:
    found, as_gpu = request.param

    def opened(quirks: Mapping[str, bool | int]) -> WGPUBackend:
        backend = open_adapter(found, quirks=quirks)
        if as_gpu:
            backend.runtime.features = replace(backend.features, cpu=False, group_size=_GPU_GROUP)
        return backend

    return Harness(opened({}), opened)


@pytest.fixture(scope="session")
def found() -> discovery.WGPUAdapter:
    """Return the best device, for tests that open it with their own options."""
    if not _DEVICES:
        pytest.skip("wgpu finds no adapter")
    return _DEVICES[0][0]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
