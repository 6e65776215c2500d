"""Zero-copy exchange: arrays of other libraries as tensors, and tensors in other libraries."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal import dtypes
from polyhal.hal.errors import CaptureError
from polyhal.hal.layout import extent
from polyhal.hal.system.discovery.registry import registry

SHARING = ["numpy", *["opencl:0"] * bool(registry().probe("opencl"))]


@pytest.fixture(params=SHARING, scope="module")
def sharing(request: pytest.FixtureRequest) -> ph.Device:
    return ph.Device(request.param)


@pytest.fixture(scope="module")
def device(sharing: ph.Device) -> ph.Device:
    return sharing


@st.composite
def _arrays(draw: st.DrawFn) -> np.ndarray:
    """Return views of a larger array at any element, with steps of either sign."""
    name = draw(st.sampled_from(["float32", "float64", "int64", "int16", "bool", "uint8"]))
    count = draw(st.integers(1, 200))
    base = (np.arange(count) % 2).astype(name) if name == "bool" else np.arange(count).astype(name)
    start = draw(st.integers(0, count - 1))
    view = base[start :: draw(st.integers(1, 3))]
    rows = draw(st.integers(1, 4))
    if view.size % rows == 0:
        view = view.reshape(rows, -1)
    return view[tuple(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in view.shape)]


@settings(max_examples=60, deadline=None)
@given(_arrays())
def test_any_layout_is_shared(array: np.ndarray) -> None:
    x = ph.from_dlpack(array, device="numpy", copy=False)
    assert x.shape == array.shape
    assert x.dtype.numpy == array.dtype
    np.testing.assert_array_equal(x.numpy(), array)
    low, _ = extent(x.shape, x.ref.strides)
    first = x.buffer.handle.ctypes.data + (x.ref.offset + low) * x.dtype.itemsize
    assert first == np.lib.array_utils.byte_bounds(array)[0]
    before = array.copy()
    x.zero_()
    assert not array.any()
    array[...] = before
    np.testing.assert_array_equal(x.numpy(), before)


def test_writes_are_visible_to_both_libraries(device: ph.Device) -> None:
    array = np.arange(1000, dtype=np.float32)[1:]
    x = ph.from_dlpack(array, device=device)
    x *= 2
    device.synchronize()
    np.testing.assert_array_equal(array, 2 * np.arange(1, 1000))
    array += 1
    np.testing.assert_array_equal(x.numpy(), array)
    assert (x + x).sum().item() == pytest.approx(2 * array.sum(dtype=np.float64))


def test_pytorch_tensors_are_shared(device: ph.Device) -> None:
    theirs = torch.arange(12.0).reshape(3, 4).mT
    x = ph.from_dlpack(theirs, device=device)
    x += 1
    device.synchronize()
    assert theirs.tolist() == (torch.arange(12.0).reshape(3, 4).mT + 1).tolist()


def test_copies_are_made_where_asked_and_where_needed(device: ph.Device) -> None:
    array = np.ones(100, np.float32)
    x = ph.from_dlpack(array, device=device, copy=True)
    array[:] = 2
    assert x.sum().item() == 100
    constant = np.ones(100, np.float32)
    constant.flags.writeable = False
    y = ph.from_dlpack(constant, device=device)
    y += 1
    assert y.sum().item() == 200
    assert constant.sum() == 100
    with pytest.raises(ValueError, match="takes a copy"):
        ph.from_dlpack(constant, device=device, copy=False)
    with pytest.raises(ValueError, match="takes a copy"):
        ph.from_dlpack(array, device="sim", copy=False)
    assert ph.from_dlpack(np.zeros((0, 3), np.float32), device=device).shape == (0, 3)


class _Owner(np.ndarray):
    """An array that can be watched."""


def test_the_array_lives_as_long_as_the_tensor_and_its_work(device: ph.Device) -> None:
    array = np.zeros(1000, np.float32).view(_Owner)
    gone = weakref.ref(array)
    x = ph.from_dlpack(array, device=device, copy=False)
    view = x[10:]
    del array, x
    gc.collect()
    assert gone() is not None, "a view needs it"
    total = (view + 1).sum()
    del view
    gc.collect()
    assert gone() is not None, "work on it may be under way"
    device.synchronize()
    gc.collect()
    assert gone() is None
    assert total.item() == 990


def test_imports_take_no_memory_of_the_device(device: ph.Device) -> None:
    used, available = device.memory_stats().used, device.backend.memory_available()
    kept = [ph.from_dlpack(np.zeros(100_000, np.float32), device=device, copy=False) for _ in range(5)]
    assert device.memory_stats().used == used
    assert device.backend.memory_available() >= available
    del kept


def test_tensors_are_exported_without_a_copy(device: ph.Device) -> None:
    x = ph.arange(24, dtype="float32", device=device).reshape((4, 6))
    theirs = np.from_dlpack(x[1:, ::2])
    np.testing.assert_array_equal(theirs, x[1:, ::2].numpy())
    x += 1
    device.synchronize()
    np.testing.assert_array_equal(theirs, x[1:, ::2].numpy())
    copied = torch.from_dlpack(x, copy=True)
    x += 1
    assert copied.tolist() == (x - 1).tolist()


def test_an_export_of_another_memory_is_a_copy() -> None:
    x = ph.ones((3,), device="sim")
    theirs = np.from_dlpack(x)
    x += 1
    assert theirs.tolist() == [1, 1, 1]
    with pytest.raises(BufferError, match="takes a copy"):
        np.from_dlpack(x, copy=False)


def test_a_recorded_step_has_no_memory_to_export(device: ph.Device) -> None:
    def step(x: Any) -> Any:
        return ph.tensor(np.from_dlpack(x + 1), device=device)

    with pytest.raises(CaptureError, match="only being recorded"):
        ph.jit(step, warm_up=False)(ph.ones((3,), device=device))


def test_every_dtype_is_shared(device: ph.Device) -> None:
    for dtype in dtypes.ALL:
        if dtype.kind == "complex" or dtype is dtypes.bfloat16:
            continue
        array = np.ones(7, dtype.numpy)
        x = ph.from_dlpack(array, device=device, copy=False)
        x.zero_()
        device.synchronize()
        assert not array.any(), dtype
