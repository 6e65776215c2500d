"""Exchanges by DLPack share memory wherever a device works in the host's."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.system.discovery.registry import registry
from tests.array_api.exchanges import LIBRARIES, Library, count, host_address

DEVICES = [name for name in ("numpy", "opencl:0", "wgpu:0", "sim") if registry().probe(name.partition(":")[0])]
SHARING = "numpy", "opencl:0"


@pytest.fixture(params=DEVICES, scope="module")
def device(request: pytest.FixtureRequest) -> ph.Device:
    return ph.Device(request.param)


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=lambda library: library.name)
def test_memory_is_shared_where_a_device_works_in_the_hosts(device: ph.Device, library: Library) -> None:
    module = library.load()
    if module is None:
        pytest.skip(f"needs {library.name}")
    given, taken = count(device, library, module)
    assert (given.shared > 0, given.copied > 0) == ((True, False) if device.name in SHARING else (False, True))
    shares = device.name in SHARING and not library.is_immutable
    assert (taken.shared > 0, taken.copied > 0) == ((True, False) if shares else (False, True))


@pytest.mark.parametrize("nbytes", [1, 3, 64, 1000])
def test_memory_of_numpys_device_begins_at_a_cache_line(nbytes: int) -> None:
    kept = [ph.ones((nbytes,), dtype="uint8", device="numpy") for _ in range(5)]
    assert all((host_address(x) or 1) % 64 == 0 for x in kept)


def test_arrays_that_cannot_change_are_copied() -> None:
    jax = LIBRARIES["jax"].load()
    if jax is None:
        pytest.skip("needs jax")
    theirs = jax.arange(5.0)
    ours = ph.from_dlpack(theirs, device="numpy")
    ours += 1
    np.testing.assert_array_equal(np.asarray(theirs), np.arange(5.0))
    with pytest.raises(ValueError, match="takes a copy"):
        ph.from_dlpack(theirs, device="numpy", copy=False)
