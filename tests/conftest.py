"""Which devices the tests run on, and rules that hold for all of them.

`POLYHAL_TEST_DEVICES` lists device names; without it the NumPy devices and the default OpenCL device, if there is
one, are used. `POLYHAL_REQUIRE` lists backends that must be there: a missing one stops the run instead of thinning it
out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.hal.registry import registry
from polyhal.hal.testing.plugin import DEVICES

os.environ.setdefault("POLYHAL_MEASURE_TIMEOUT", "0")
"""The default device of a test must not depend on a clock; tests of measuring set it themselves."""

NUMPY = ("numpy", "numpy:contiguous_only", "numpy:no_f64")
"""The plain NumPy device, one with the required members only, one without float64."""


def _listed(variable: str) -> list[str]:
    return [n.strip() for n in os.environ.get(variable, "").split(",") if n.strip()]


def _test_devices() -> list[str]:
    return _listed("POLYHAL_TEST_DEVICES") or [*NUMPY, *(["opencl"] if registry().probe("opencl") else [])]


TEST_DEVICES = _test_devices()


def pytest_configure(config: pytest.Config) -> None:
    for name in _listed("POLYHAL_REQUIRE"):
        try:
            Device(name)
        except DeviceUnavailableError as error:
            raise pytest.UsageError(f"POLYHAL_REQUIRE names {name}, which is missing:\n{error}") from error
    config.stash[DEVICES] = TEST_DEVICES


@pytest.fixture(autouse=True)
def _no_host_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op that would run on the host, or whose kernel does not build, fails in every test that does not say otherwise."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    monkeypatch.setenv("POLYHAL_STRICT", "1")


@pytest.fixture(params=TEST_DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    """Each device under test."""
    return Device(request.param)


@pytest.fixture
def numpy_device() -> Iterator[Device]:
    """The plain NumPy device, for tests of what no device has a part in; ops without inputs run there too."""
    from polyhal.hal import dispatch

    target = Device("numpy")
    with dispatch.default_device(target):
        yield target
