"""Rules that hold for all tests. `POLYHAL_REQUIRE` lists backends that must be there: a missing one stops the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from devices import KIT_DEVICES, PARITY_DEVICES, TEST_DEVICES, listed
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from rotation import rotate

from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.hal.testing.plugin import DEVICES, freeze_garbage

os.environ.setdefault("POLYHAL_DEVICE", "numpy")
"""Tests that name no device do not depend on one, and NumPy compiles nothing."""
os.environ.setdefault("POLYHAL_MEASURE_TIMEOUT", "0")
"""The default device of a test must not depend on a clock; tests of measuring set it themselves."""
os.environ.setdefault("POLYHAL_TRIALS", "0")
"""Most processes of tests begin with an empty cache; tests of trials set it themselves."""
os.environ.setdefault("POLYHAL_BUILD_AHEAD", "0")
"""Tests run on all cores as it is."""
os.environ.setdefault("GALLIVM_PERF", "nopt")
"""Mesa's software devices compile each kernel of a test to run it for microseconds."""
os.environ.setdefault("POCL_AFFINITY", "0")
"""PoCL's workers compile, too: those of two processes that run tests must not wait for one core."""
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""Tests start hundreds of processes: each would compile all modules, which takes as long as the rest of its start."""

TAKE_TURNS = ("autograd", "complex_numbers", "func", "linear_algebra", "nn", "optim", "pointwise", "tensor")
"""Folders whose cases with a `device` and other parameters take turns on the devices: the kit runs their ops on each device."""

settings.register_profile("polyhal", deadline=None)
settings.load_profile("polyhal")  # how long an example takes depends on other work of the machine
if hasattr(providers, "_get_local_constants"):
    # Hypothesis would parse all modules of the project in each process, six seconds, to try their constants as values.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow", choices=("no", "yes", "only"), default="no", help="run the tests that are marked as slow; default: no"
    )


def pytest_configure(config: pytest.Config) -> None:
    for name in listed("POLYHAL_REQUIRE"):
        try:
            Device(name)
        except DeviceUnavailableError as error:
            raise pytest.UsageError(f"POLYHAL_REQUIRE names {name}, which is missing:\n{error}") from error
    config.stash[DEVICES] = KIT_DEVICES


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a slow test if only slow ones run: to collect the others takes each process 20 seconds."""
    if config.getoption("slow") != "only" or not collection_path.name.startswith("test_") or collection_path.is_dir():
        return None
    return True if "mark.slow" not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for folder in TAKE_TURNS:
        rotate(config, items, Path(__file__).parent / folder, "device", TEST_DEVICES, TEST_DEVICES)
    chosen = config.getoption("slow")
    if chosen == "yes":
        return
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        is_slow = item.get_closest_marker("slow") is not None
        (kept if is_slow is (chosen == "only") else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """All tests of a process share its devices, which keep their plans; cases of the kit see to that themselves."""
    if "polyhal_case" not in getattr(item, "fixturenames", ()):
        freeze_garbage()


@pytest.fixture(autouse=True)
def _no_host_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail tests in which an op falls back to the host undeclared, or a kernel does not build, unless they allow it."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "declared")
    monkeypatch.setenv("POLYHAL_STRICT", "1")


@pytest.fixture(params=TEST_DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    """Each device under test."""
    return Device(request.param)


@pytest.fixture(params=PARITY_DEVICES)
def parity_device(request: pytest.FixtureRequest) -> Device:
    """Each device that must agree with the others: cases of this fixture run on all of them."""
    return Device(request.param)


@pytest.fixture
def numpy_device() -> Iterator[Device]:
    """The plain NumPy device, for tests that do not depend on a device; ops without inputs run there too."""
    from polyhal.hal.core import dispatch

    target = Device("numpy")
    with dispatch.default_device(target):
        yield target
