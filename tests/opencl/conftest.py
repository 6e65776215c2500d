"""The OpenCL devices under test."""

from __future__ import annotations

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

_SHARES = [1 if "portable" in name else 4 for name in _IDS]
"""PoCL takes several times as long as other drivers to compile a kernel."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rotate(config, items, Path(__file__).parent, "found", _FOUND, _IDS, _SHARES)


@pytest.fixture(params=_FOUND, ids=_IDS, scope="session")
def found(request: pytest.FixtureRequest) -> discovery.OpenCLDevice:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def device(found: discovery.OpenCLDevice) -> Harness:
    return Harness(OpenCLBackend(found), partial(OpenCLBackend, found))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
