"""Fixtures for PyTorch's device on the devices under test: one that opens at once, and OpenCL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from devices import TEST_DEVICES, first_of
from rotation import rotate

from polyhal.hal.device import Device

pytest.importorskip("torch", reason="PyTorch is a development dependency")

NAMES = [name for kind in ("numpy", "opencl") if (name := first_of(kind))] or TEST_DEVICES[:1]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let cases with other parameters take turns: what PyTorch's device makes of a call does not depend on Polyhal's."""
    rotate(config, items, Path(__file__).parent, "torch_device", NAMES, NAMES)


@contextmanager
def _default(name: str) -> Iterator[str]:
    """The name of PyTorch's device while Polyhal's default device is the one called `name`, with an empty report."""
    import polyhal.torch

    previous = polyhal.get_default_device()
    polyhal.set_default_device(Device(name))
    polyhal.torch.reset_report()
    yield "polyhal"
    polyhal.set_default_device(previous)


@pytest.fixture(params=NAMES)
def torch_device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of PyTorch's device while Polyhal's default device is a device under test."""
    with _default(request.param) as name:
        yield name


@pytest.fixture
def torch_on_numpy() -> Iterator[str]:
    """The name of PyTorch's device while Polyhal's default device is NumPy, which compiles nothing."""
    with _default("numpy") as name:
        yield name


@pytest.fixture
def fresh_compiler(torch_on_numpy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the compiler's caches, on NumPy's device, which does not build kernels."""
    import torch

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    monkeypatch.setenv("POLYHAL_FALLBACK", "warn")


@pytest.fixture(params=["polyhal", "cpu"])
def place(request: pytest.FixtureRequest) -> str:
    """Return the PyTorch device of the tensors of compiled programs."""
    return str(request.param)


@pytest.fixture
def eager_variances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let recorded steps compute variances from inverse deviations, as eager calls do: results are equal bit for bit."""
    from polyhal.hal.compile.passes import pipeline
    from polyhal.hal.compile.passes.simplify.saved_variances import restore_variances

    monkeypatch.setattr(pipeline, "PASSES", tuple(p for p in pipeline.PASSES if p is not restore_variances))
