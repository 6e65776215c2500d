"""PyTorch's device on the devices under test: one that opens at once, and OpenCL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from devices import TEST_DEVICES, first_of

from polyhal.hal.device import Device

pytest.importorskip("torch", reason="PyTorch is a development dependency")

NAMES = [name for kind in ("numpy", "opencl") if (name := first_of(kind))] or TEST_DEVICES[:1]


@pytest.fixture(params=NAMES)
def torch_device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of PyTorch's device while Polyhal's default device is one of those under test."""
    import polyhal.torch

    previous = polyhal.get_default_device()
    polyhal.set_default_device(Device(request.param))
    polyhal.torch.reset_report()
    yield "polyhal"
    polyhal.set_default_device(previous)


@pytest.fixture
def numpy_torch() -> Iterator[None]:
    """PyTorch's device on NumPy, which compiles nothing."""
    import polyhal.torch

    previous = polyhal.get_default_device()
    polyhal.set_default_device(Device("numpy"))
    polyhal.torch.reset_report()
    yield
    polyhal.set_default_device(previous)


@pytest.fixture
def torch_on_numpy() -> Iterator[str]:
    """The name of PyTorch's device while Polyhal's default device is NumPy: for tests of what no kernel has a part in."""
    import polyhal.torch

    previous = polyhal.get_default_device()
    polyhal.set_default_device(Device("numpy"))
    polyhal.torch.reset_report()
    yield "polyhal"
    polyhal.set_default_device(previous)
