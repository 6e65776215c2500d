"""Tests beyond the conformance kit: layouts of products, transfers, threads, errors."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from conftest import STAND_IN, missing

import polyhal
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import BackendError, DeviceUnavailableError, OutOfMemoryError
from polyhal.hal.protocol import Feature

if reason := missing():
    pytest.skip(reason, allow_module_level=True)

EPSILON = {dtypes.float32: 4e-6, dtypes.float16: 2e-3, dtypes.bfloat16: 1.6e-2, dtypes.float64: 1e-12}
"""Bounds of errors, relative to the largest result: several units in the last place."""


@pytest.fixture(scope="module")
def device() -> polyhal.Device:
    return polyhal.Device("cupy")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def tensor(array: np.ndarray, device: Any, dtype: DType = dtypes.float32) -> Any:
    return polyhal.tensor(array, device=device).cast(dtype=dtype)


def wide(value: Any) -> Any:
    return value.cast(dtype=dtypes.float64).numpy()


def products_of_cublas(device: Any, monkeypatch: pytest.MonkeyPatch, work: Any) -> int:
    """Return the number of calls of cuBLAS, after a check that the work copies no operand."""
    from cupy.cuda import cublas

    calls = []
    multiply = cublas.gemmStridedBatchedEx
    monkeypatch.setattr(cublas, "gemmStridedBatchedEx", lambda *args: calls.append(multiply(*args)))
    monkeypatch.setattr(device.backend, "copy", lambda src, out: pytest.fail(f"{src.shape} was copied"))
    work()
    monkeypatch.undo()
    return len(calls)


def test_views_are_multiplied_without_copies(
    device: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (tensor(rng.standard_normal((64, 64)), device) for _ in range(2))
    heads = tensor(rng.standard_normal((4, 32, 3 * 64)), device).reshape((4, 32, 3, 64)).permute((0, 2, 1, 3))
    assert products_of_cublas(device, monkeypatch, lambda: a.permute((1, 0)) @ b[:, 8:40]) == 1
    assert products_of_cublas(device, monkeypatch, lambda: heads @ a) == 3


@pytest.mark.parametrize("dtype", EPSILON, ids=lambda d: d.name)
def test_products_of_any_layout(device: Any, rng: np.random.Generator, dtype: DType) -> None:
    def draw(*shape: int) -> Any:
        return tensor(rng.uniform(-1, 1, shape), device, dtype)

    for a, b in (
        (draw(130, 70).permute((1, 0)), draw(130, 90)),
        (draw(3, 1, 7, 30), draw(4, 30, 20)),
        (draw(6, 7, 30), draw(6, 20, 30).permute((0, 2, 1))),
        (draw(40, 60)[::2, ::2], draw(30, 20)),
        (draw(2, 3, 5, 4, 6)[:, :, ::2], draw(3, 1, 6, 8)),
        (draw(70, 2, 7, 30)[:, :, ::2], draw(2, 1, 30, 20).permute((1, 0, 2, 3))),
    ):
        expected = wide(a) @ wide(b)
        np.testing.assert_allclose(wide(a @ b), expected, rtol=0, atol=EPSILON[dtype] * np.abs(expected).max())


def test_sums_of_int64_by_index_wrap(device: Any) -> None:
    """CUDA has no atomic addition of int64; the additions are of uint64."""
    rows = polyhal.tensor(np.array([[2**62], [2**62], [-5]]), device=device)
    index = polyhal.tensor(np.array([1, 1, 0]), device=device)
    summed = polyhal.zeros((2, 1), dtype=dtypes.int64, device=device).index_add(0, index, rows)
    assert summed.numpy().tolist() == [[-5], [-(2**63)]]


def test_fills_keep_signs_of_zeros_and_wrap_integers(device: Any) -> None:
    zeros = polyhal.full((2, 3), -0.0, device=device)
    assert np.signbit(zeros.numpy()).all()
    assert polyhal.full((2,), 2**64 - 1, dtype=dtypes.uint64, device=device).numpy().tolist() == [2**64 - 1] * 2
    assert polyhal.full((2,), -1, dtype=dtypes.int8, device=device).numpy().tolist() == [-1] * 2


def test_optional_protocols(device: Any) -> None:
    assert device.features == Feature.LOWERING | Feature.PINNED_MEMORY | Feature.PEER_COPY


def test_source_may_change_after_an_upload(device: Any, rng: np.random.Generator) -> None:
    backend = device.backend
    for size in (16, 100_000, 33 * 2**20 + 5):
        data = rng.integers(0, 255, size, np.uint8)
        handle = backend.allocate(size + 7)
        expected = data.copy()
        backend.copy_to_device(memoryview(data), handle, 7)
        data[:] = 0
        back = np.empty(size - 2, np.uint8)
        backend.copy_from_device(handle, 9, memoryview(back))
        np.testing.assert_array_equal(back, expected[2:])
        backend.deallocate(handle)


def test_pinned_memory(device: Any) -> None:
    view = device.backend.allocate_pinned(4096)
    np.frombuffer(view, np.uint8)[:] = 7
    handle = device.backend.allocate(4096)
    event = device.backend.copy_to_device_async(view, handle, 0)
    event.wait()
    assert event.is_complete()
    back = bytearray(4096)
    device.backend.copy_from_device(handle, 0, memoryview(back))
    assert set(back) == {7}
    device.backend.deallocate(handle)


def test_out_of_memory_leaves_the_device_usable(device: Any) -> None:
    with pytest.raises(OutOfMemoryError, match="allocating 1125899906842624 bytes failed"):
        device.backend.allocate(1 << 50)
    assert wide(tensor(np.ones(3), device) + 1).tolist() == [2, 2, 2]


def test_errors_of_cublas_are_typed(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy.cuda import cublas

    def fail(*_: Any) -> None:
        raise cublas.CUBLASError(13)

    a = tensor(np.ones((3, 3)), device)
    monkeypatch.setattr(cublas, "gemmStridedBatchedEx", fail)
    with pytest.raises(BackendError, match="multiplying 1 x 3 x 3 x 3 matrices failed"):
        a @ a


def test_threads_share_a_device(device: Any) -> None:
    inputs = [tensor(np.full(500, float(i)), device) for i in range(4)]
    sums: list[Any] = [None] * 4

    def work(i: int) -> None:
        for _ in range(100):
            sums[i] = (inputs[i] * 2).sum()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [s.item() for s in sums] == [0, 1000, 2000, 3000]


def test_an_unknown_device_raises() -> None:
    with pytest.raises(DeviceUnavailableError, match="there is no CUDA device '99'"):
        polyhal.Device("cupy:99")


@pytest.mark.skipif(STAND_IN, reason="only a GPU has TensorFloat-32")
def test_products_of_float32_do_not_use_tensorfloat_32(device: Any, rng: np.random.Generator) -> None:
    """TensorFloat-32 has relative errors of 1e-4."""
    a, b = (tensor(rng.standard_normal((512, 512)), device) for _ in range(2))
    error = np.linalg.norm(wide(a @ b) - wide(a) @ wide(b)) / np.linalg.norm(wide(a) @ wide(b))
    assert error < 3e-6
