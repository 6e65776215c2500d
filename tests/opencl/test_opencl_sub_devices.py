"""A CPU split into devices with some of its cores each, on every driver that supports it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from native_harness import Harness

from polyhal import Tensor
from polyhal.backends.opencl import discovery, sub_devices
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.hal import dtypes
from polyhal.hal.core.fingerprint import device_key, model_key
from polyhal.hal.device import Device
from polyhal.hal.errors import DeviceUnavailableError
from polyhal.hal.system.discovery.registry import registry

_ROUNDS = 50
"""Attempts to observe two devices running concurrently: other programs may delay one of them."""
_PATIENCE = 60.0
"""Maximum seconds for which one device waits for the other."""


@pytest.fixture(scope="session")
def whole(found: discovery.OpenCLDevice) -> Device:
    if found.cl.max_compute_units < 2 or not sub_devices.most_parts(found.cl):
        pytest.skip("cannot be split")
    return Device(f"opencl:{found.info.selector}")


@pytest.fixture(scope="session")
def halves(whole: Device) -> tuple[Device, Device]:
    return Device(f"{whole.name}/2:0"), Device(f"{whole.name}/2:1")


def test_halves_are_separate_devices(whole: Device, halves: tuple[Device, Device]) -> None:
    assert [h.name for h in halves] == [f"{whole.name}/2:0", f"{whole.name}/2:1"]
    assert len({device_key(d) for d in (whole, *halves)}) == 3
    assert model_key(halves[0].info) == model_key(halves[1].info) != model_key(whole.info)
    assert sum(_units(h) for h in halves) == _units(whole)
    assert sum(h.info.memory for h in halves) <= whole.info.memory
    assert halves[0].pool is not halves[1].pool
    assert Device(f"{whole.name}/2") is halves[0]
    assert Device(f"{whole.name}/2:1") is halves[1]
    assert not {h.name for h in halves} & {c.name for c in registry().candidates(hidden=True)}


def test_each_half_computes(halves: tuple[Device, Device]) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 70, 70)).astype(np.float32)
    for half in halves:
        device = Harness(half.backend)
        product = device.run("matmul", [device.upload(a), device.upload(b)], dtypes.float32, (70, 70))
        # Higham 2002, section 3.5: n roundings of products and sums.
        bound = 70 * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b))
        assert np.all(np.abs(product - a.astype(np.float64) @ b) <= bound)
        total = device.run("sum", [device.upload(a)], dtypes.float32, (70,), axis=(1,), keepdims=False)
        bound = 70 * np.finfo(np.float32).eps * np.abs(a).sum(axis=1)
        assert np.all(np.abs(total - a.sum(axis=1, dtype=np.float64)) <= bound)
        place = device.run("argmax", [device.upload(a)], dtypes.int64, (70,), axis=-1, keepdims=False)
        np.testing.assert_array_equal(place, a.argmax(axis=-1))


def test_both_halves_run_concurrently(halves: tuple[Device, Device]) -> None:
    """Kernels on both run at the same time by the driver's clock."""
    x = np.random.default_rng(4).standard_normal((768, 768)).astype(np.float32)

    def product(half: Device, together: threading.Barrier) -> tuple[int, int]:
        device = Harness(half.backend)
        ref, out = device.upload(x), device.empty(dtypes.float32, x.shape)
        launch = half.backend.lower("matmul", (ref.spec, ref.spec), (out.spec,), {})
        operands = [ref, ref, out, *map(half.backend.allocate, launch.workspace)]
        launch(*operands)
        half.synchronize()
        half.backend.start_profiling()
        together.wait(_PATIENCE)
        launch(*operands)
        half.synchronize()
        ran = half.backend.stop_profiling()
        return min(start for _, start, _ in ran), max(end for _, _, end in ran)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(_ROUNDS):
            starts, ends = zip(*pool.map(product, halves, [threading.Barrier(2)] * 2), strict=True)
            if max(starts) < min(ends):
                return
    pytest.fail(f"in {_ROUNDS} attempts the halves ran one after the other")


def test_copies_between_halves_keep_the_order(halves: tuple[Device, Device]) -> None:
    """The driver copies after the work that computes the value, and before the work that overwrites it."""
    first, second = halves
    assert second.backend.can_copy_from(first.backend)  # type: ignore[attr-defined]
    x = Tensor(np.zeros((300, 700), np.float32), device=first)
    for turn in range(20):
        x += 1
        y = x.to(second)
        x += 1
        z = (y * 2).to(first)
        np.testing.assert_array_equal(z.numpy(), 4 * turn + 2)
        np.testing.assert_array_equal(y.numpy(), 2 * turn + 1)


def test_parts_use_programs_of_the_whole_device(
    whole: Device, halves: tuple[Device, Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    text = "kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }"
    compiled = []
    for device in (whole, *halves):
        fresh = OpenCLBackend(discovery.select(device.info.selector))
        program = fresh.runtime.programs.build("twice.cl", text)
        x = Harness(fresh).upload(np.arange(5, dtype=np.int32))
        program.twice(fresh.runtime.queue, (5,), None, x.handle)
        np.testing.assert_array_equal(Harness(fresh).download(x), 2 * np.arange(5))
        compiled.append(fresh.runtime.programs.compilations)
    assert compiled == [1, 0, 0]


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("/2:2", "part 2 of 2 does not exist; expected 0 to 1"),
        ("/0", "part 0 of 0 does not exist; expected 1 or more parts"),
        ("/100000:1", "it cannot be split into 100000 parts; expected at most {cores}, one for each core"),
    ],
)
def test_impossible_splits(whole: Device, split: str, said: str) -> None:
    with pytest.raises(DeviceUnavailableError) as caught:
        discovery.select(whole.info.selector + split)
    assert str(caught.value) == f"{said.format(cores=_units(whole))} (on {whole.info.name})"


def test_a_part_cannot_be_split_again(halves: tuple[Device, Device]) -> None:
    with pytest.raises(DeviceUnavailableError, match="there is no OpenCL device"):
        discovery.select(f"{halves[0].info.selector}/2:0")


def test_a_device_that_its_driver_cannot_split(found: discovery.OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs are examples."""
    monkeypatch.setattr(sub_devices, "most_parts", lambda device: 0)
    with pytest.raises(DeviceUnavailableError, match="its driver cannot split it; expected a processor"):
        discovery.select(f"{found.info.selector}/3")


def test_uneven_parts_share_all_cores(found: discovery.OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven cores are split into three parts."""
    given: list[Sequence[int]] = []
    monkeypatch.setattr(sub_devices, "most_parts", lambda device: 7)
    monkeypatch.setattr(sub_devices, "_partition", lambda parent, counts: given.append(counts) or [found.cl])
    sub_devices._split(found, 3, 7)
    assert given == [(3, 2, 2)]


def test_a_platform_is_split_by_its_name() -> None:
    if not any(c.info.driver.startswith("Portable") for c in registry().probe("opencl")):
        pytest.skip("PoCL is not installed")
    if (whole := Device("opencl:pocl")).capabilities.features["sub_devices"] == "1":
        pytest.skip("one core")
    assert Device("opencl:pocl/2:1") is Device(f"{whole.name}/2:1")


@pytest.mark.parametrize(
    ("selector", "parts"),
    [
        ("pocl/2", ["pocl/2:0", "pocl/2:1"]),
        ("1/3:2", ["1/3:2"]),
        ("1", ["1"]),
        ("pci/0000:65:00.0", ["pci/0000:65:00.0"]),
    ],
)
def test_a_split_without_an_index_selects_all_parts(selector: str, parts: list[str]) -> None:
    assert sub_devices.expand(selector) == parts


def _units(device: Device) -> int:
    return int(device.capabilities.features["compute_units"])
