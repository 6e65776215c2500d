"""The wgpu devices under test."""

from __future__ import annotations

import numpy as np
import pytest
from native_harness import Harness

from polyhal.backends.wgpu import discovery
from polyhal.backends.wgpu.backend import WGPUBackend


def _devices() -> list[discovery.Found]:
    try:
        return discovery.devices()
    except RuntimeError:
        return []


_FOUND = _devices()


@pytest.fixture(params=_FOUND, ids=[f"{f.info.selector}-{f.api.lower()}" for f in _FOUND], scope="session")
def found(request: pytest.FixtureRequest) -> discovery.Found:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def device(found: discovery.Found) -> Harness:
    return Harness(WGPUBackend(found))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
