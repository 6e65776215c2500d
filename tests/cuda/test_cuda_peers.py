"""Copies between two devices of the CUDA backend, and tensors that move from one to the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated_backend import Emulation

import polyhal as ph
from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError
from polyhal.hal.layout import Ref, contiguous

_SPEC = contiguous(dtypes.float32, (64,))


@pytest.fixture(params=[True, False], ids=["reachable", "through the host"])
def pair(request: pytest.FixtureRequest, emulate: Any) -> Emulation:
    return emulate(2, peers=request.param)  # type: ignore[no-any-return]


def test_a_copy_follows_the_work_of_both_devices(pair: Emulation) -> None:
    """The sender's memory is overwritten, and the receiver's read, before either device has started."""
    one, other = pair.backends
    source, target = (Ref(b.allocate(_SPEC.nbytes), _SPEC, 0) for b in (one, other))
    one.fill(3.0, source)
    other.fill(1.0, target)
    assert other.can_copy_from(one)
    done = other.copy_from_peer(one, source.handle, 16, target.handle, 32, 64)
    one.fill(9.0, source)
    other.binary("add", target, target, target)
    out = np.zeros(64, np.float32)
    other.copy_from_device(target.handle, 0, memoryview(out.view(np.uint8)))
    np.testing.assert_array_equal(out, np.where((np.arange(64) >= 8) & (np.arange(64) < 24), 6, 2))
    done.wait()
    assert done.is_complete()
    one.synchronize()


def test_a_callback_reports_the_copy(pair: Emulation) -> None:
    one, other = pair.backends
    source, target = one.allocate(64), other.allocate(64)
    done = other.copy_from_peer(one, source, 0, target, 0, 64)
    called: list[Any] = []
    done.add_callback(called.append)
    done.wait()
    other.synchronize()
    assert done.is_complete()
    while not called:
        pass
    assert called == [None]


def test_a_copy_within_one_device_between_two_openings(emulation: Emulation) -> None:
    first, second = emulation.backend, emulation.open()
    source, target = (Ref(b.allocate(_SPEC.nbytes), _SPEC, 0) for b in (first, second))
    first.fill(5.0, source)
    second.copy_from_peer(first, source.handle, 0, target.handle, 0, _SPEC.nbytes).wait()
    out = np.zeros(64, np.float32)
    second.copy_from_device(target.handle, 0, memoryview(out.view(np.uint8)))
    assert (out == 5).all()


def test_a_refused_copy_names_both_devices(pair: Emulation) -> None:
    one, other = pair.backends
    source, target = one.allocate(64), other.allocate(64)
    pair.library.refused["cuMemcpyPeerAsync"] = 1
    with pytest.raises(BackendError, match=r"copying 64 bytes from Emulated GPU 0 failed with .*\(on Emulated GPU 1\)"):
        other.copy_from_peer(one, source, 0, target, 0, 64)


def test_tensors_move_between_devices_in_a_program(pair: Emulation) -> None:
    one, other = (Device.opened(f"cuda:{i}", b) for i, b in enumerate(pair.backends))
    x = ph.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), device=one, requires_grad=True)
    y = (x * 2).to(other)
    z = (y @ y.T).to(one) + 1
    z.sum().backward()
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(z.numpy(), 4 * values @ values.T + 1)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.broadcast_to(8 * values.sum(0), (3, 4)))
    assert "cuMemcpyPeerAsync" in pair.library.calls
