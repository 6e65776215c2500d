"""Drivers that copy memory instead of sharing it are detected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import polyhal as ph
from polyhal.backends.opencl.backend import create
from polyhal.backends.opencl.host_sharing import HostSharing

pytestmark = pytest.mark.usefixtures("any_device")


def test_processors_share_the_memory_of_the_host() -> None:
    assert HostSharing(create("0").runtime).works()


def test_a_driver_that_copies_host_memory_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(self: HostSharing, memory: np.ndarray) -> cl.Buffer:
        flags: Any = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self._runtime.context, flags, hostbuf=memory)

    monkeypatch.setattr(HostSharing, "_buffer_over", copied)
    sharing = HostSharing(create("0").runtime)
    memory = np.zeros(64, np.uint8)
    assert not sharing.works()
    assert sharing.buffer(memory.ctypes.data, memory.nbytes) is None


def test_a_driver_that_maps_copies_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = np.zeros(1 << 20, np.uint8)
    monkeypatch.setattr(HostSharing, "_address", lambda self, buffer, nbytes: elsewhere.ctypes.data)
    assert not HostSharing(create("0").runtime).works()


def test_an_imported_tensor_is_an_operand_as_any_other() -> None:
    device = ph.Device("opencl:0")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((37, 65)).astype(np.float32), rng.standard_normal((65, 33)).astype(np.float32)
    product = ph.from_dlpack(a, device=device, copy=False) @ ph.from_dlpack(b, device=device, copy=False)
    np.testing.assert_allclose(product.numpy(), a.astype(np.float64) @ b, rtol=0, atol=65 * 2e-7 * 10)
