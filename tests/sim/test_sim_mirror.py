"""The command stream on real OpenCL buffers: the same bytes, and a difference is found."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from devices import TEST_DEVICES
from simulated import OpenSim, sim_of

import polyhal
from polyhal import nn, optim
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError
from polyhal.hal.system.discovery.registry import registry

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def mirrored(open_sim: OpenSim) -> Device:
    """Open a device whose memory is mirrored in OpenCL buffers."""
    if not any(name.startswith("opencl") for name in TEST_DEVICES):
        pytest.skip("no OpenCL device is under test")
    return open_sim(",mirror=opencl")


def test_transfers_copies_and_kernels_are_executed_twice(mirrored: Device) -> None:
    mirror = sim_of(mirrored).gpu.mirror
    assert mirror is not None
    x = polyhal.tensor(X, device=mirrored)
    y = x.clone()
    y[1] = 7.0
    assert np.array_equal((y @ x.mT).numpy(), y.numpy() @ X.T)
    assert mirror.transfers >= 6


def test_a_network_trains_on_mirrored_memory(mirrored: Device) -> None:
    layer = nn.Linear(4, 2).to(mirrored)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (layer(polyhal.tensor(X, device=mirrored)) ** 2).mean().backward()
        optimizer.step()
    assert np.isfinite(layer.weight.numpy()).all()


def test_a_difference_is_an_error(mirrored: Device) -> None:
    x = polyhal.tensor(X, device=mirrored)
    mirrored.synchronize()
    allocation, _ = sim_of(mirrored).gpu.memory.find(x.ref.handle, 4)
    assert allocation.storage is not None
    allocation.storage[5] ^= 1
    with pytest.raises(BackendError, match="1 of 48 bytes differ from those in the OpenCL buffer, first at byte 5"):
        x.numpy()


def test_the_mirror_uses_the_same_drivers_as_polyhal(mirrored: Device) -> None:
    """This includes drivers installed as packages, in a process that has not listed OpenCL devices before."""
    code = """
import polyhal
polyhal.ones((3,), device="sim:teaching,mirror=opencl")
import pyopencl
print(*(d.name.strip() for platform in pyopencl.get_platforms() for d in platform.get_devices()), sep="\\n")
"""
    fresh = {k: v for k, v in os.environ.items() if k != "OCL_ICD_VENDORS"}  # set by this process
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=fresh, capture_output=True, text=True, timeout=120, check=True)
    expected = {c.info.name.strip() for c in registry().candidates() if c.backend.name == "opencl"}
    assert expected <= set(done.stdout.splitlines())
