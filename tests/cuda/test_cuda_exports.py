"""Tensors of a CUDA device in other libraries: DLPack and the CUDA array interface, the order of streams, lifetimes."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from emulated_backend import Emulation
from foreign_library import ForeignLibrary, is_versioned, place_of

import polyhal as ph
from polyhal.hal.device import Device


def tensor(device: Device, *shape: int, dtype: str = "float32") -> ph.Tensor:
    """Return consecutive numbers, which a kernel writes when the device works."""
    return (ph.arange(int(np.prod(shape)), device=device) + 1).to(dtype).reshape(shape)


@pytest.mark.parametrize("own_stream", [False, True])
def test_another_library_works_in_the_memory_after_the_device_without_waiting(
    emulation: Emulation, own_stream: bool
) -> None:
    library = ForeignLibrary(emulation, own_stream=own_stream)
    x = tensor(emulation.device, 3, 4)
    with emulation.library.logged() as calls:
        taken = library.from_dlpack(x)
    assert not [name for name in calls if "Synchronize" in name]
    assert taken.ctypes.data == x.__cuda_array_interface__["data"][0]
    seen: list[Any] = []
    library.run(lambda: seen.append(taken.copy()))
    library.run(lambda: np.multiply(taken, 2, out=taken))
    library.synchronize()
    np.testing.assert_array_equal(seen[0], np.arange(1, 13).reshape(3, 4))
    x += 1
    np.testing.assert_array_equal(x.numpy(), 2 * np.arange(1, 13).reshape(3, 4) + 1)
    np.testing.assert_array_equal(taken, x.numpy())


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float32", "float64"])
def test_every_dtype_and_view_keeps_its_elements(emulation: Emulation, dtype: str) -> None:
    library = ForeignLibrary(emulation)
    x = tensor(emulation.device, 4, 6, dtype=dtype)
    for view in (x, x[1:, ::2], x.mT, x[2], x[0, 3], x[:, :1].broadcast_to((4, 6)), x[2:2]):
        expected = view.numpy()
        for taken in (library.from_dlpack(view), library.from_interface(view)):
            library.synchronize()
            assert taken.dtype == expected.dtype
            assert taken.shape == expected.shape
            np.testing.assert_array_equal(taken, expected)
    by_interface, by_capsule = library.from_interface(x[1:, ::2]), library.from_dlpack(x[1:, ::2])
    assert by_interface.ctypes.data == by_capsule.ctypes.data
    assert by_interface.strides == by_capsule.strides


def test_the_stream_of_the_consumer_decides_who_waits(emulation: Emulation) -> None:
    library = ForeignLibrary(emulation, own_stream=True)
    x = tensor(emulation.device, 2)
    for stream in (None, 1, 2, library.stream):
        with emulation.library.logged() as calls:
            x.__dlpack__(stream=stream)
        assert calls.count("cuStreamWaitEvent") == 1
        assert "cuStreamSynchronize" not in calls
    with emulation.library.logged() as calls:
        x.__dlpack__(stream=-1)
        x.__dlpack__(stream=emulation.backend.stream_number())
    assert "cuStreamWaitEvent" not in calls, "neither no order nor the device's own stream need an event"
    for wrong in (0, -2, 1.5, "1"):
        with pytest.raises(ValueError, match=r"got stream=.*1 for the default stream"):
            x.__dlpack__(stream=wrong)


def test_streams_of_the_device_that_the_thread_has_selected_are_awaited(emulation: Emulation) -> None:
    library = ForeignLibrary(emulation, own_stream=True)
    device = emulation.device
    with device.stream():
        x = tensor(device, 5)
        taken = library.from_dlpack(x)
        assert x.__cuda_array_interface__["stream"] != emulation.backend.runtime.streams.own.handle
    library.synchronize()
    np.testing.assert_array_equal(taken, np.arange(1, 6))


def test_numpy_takes_a_copy_in_host_memory(emulation: Emulation) -> None:
    x = tensor(emulation.device, 2, 3)
    expected = x.numpy()
    for taken in (np.from_dlpack(x), np.from_dlpack(x, copy=True), np.from_dlpack(x, device="cpu"), np.asarray(x)):
        np.testing.assert_array_equal(taken, expected)
    for capsule in (ph.to_dlpack(x), x.__dlpack__(), x.__dlpack__(stream=1, dl_device=(1, 0))):
        assert tuple(place_of(capsule)) == (1, 0)
    x += 1
    np.testing.assert_array_equal(taken, expected)
    with pytest.raises(BufferError, match="takes a copy"):
        np.from_dlpack(x, copy=False)
    with pytest.raises(ValueError, match="can only be copied"):
        np.asarray(x, copy=False)


def test_copies_and_versions_are_as_requested(emulation: Emulation) -> None:
    library = ForeignLibrary(emulation)
    x = tensor(emulation.device, 4)
    copied, shared = library.from_dlpack(x, copy=True), library.from_dlpack(x, copy=False)
    x += 1
    emulation.library.finish()
    assert copied.tolist() == [1, 2, 3, 4]
    assert shared.tolist() == [2, 3, 4, 5]
    assert is_versioned(x.__dlpack__(stream=1, max_version=(1, 1)))
    for options in ({}, {"max_version": None}, {"max_version": (0, 8)}):
        capsule = x.__dlpack__(stream=1, **options)
        assert not is_versioned(capsule)
        assert tuple(place_of(capsule)) == (2, 0)
    assert tuple(place_of(x.__dlpack__(dl_device=(2, 0)))) == (2, 0)
    with pytest.raises(BufferError, match=r"device \(2, 5\)"):
        ph.to_dlpack(x, device=True).__dlpack__(dl_device=(2, 5))


def test_negative_strides_are_exported_as_a_copy(emulation: Emulation) -> None:
    """PyTorch ends the process for them."""
    library = ForeignLibrary(emulation)
    x = tensor(emulation.device, 6)[::-1]
    taken = library.from_dlpack(x)
    library.synchronize()
    assert taken.strides == (4,)
    assert taken.tolist() == [6, 5, 4, 3, 2, 1]
    with pytest.raises(BufferError, match="takes a copy"):
        x.__dlpack__(stream=1, copy=False)
    assert library.from_interface(x).strides == (-4,), "which the array interface has"


def test_memory_is_reused_only_after_the_work_of_other_libraries(emulation: Emulation) -> None:
    """The library drops its array while its stream, which has not run yet, still has to read it."""
    library = ForeignLibrary(emulation)
    device = emulation.device
    x = tensor(device, 1000)
    device.synchronize()
    for take in (library.from_dlpack, library.from_interface):
        taken = take(x)
        address, seen = taken.ctypes.data, []
        view = library.unowned(taken)
        library.run(lambda view=view, seen=seen: seen.append(view.copy()))
        del taken, x
        gc.collect()
        for _ in range(3):
            x = ph.zeros((1000,), device=device)
            assert x.__cuda_array_interface__["data"][0] != address
            assert x.sum().item() == 0  # the device is done, so only the other library uses the memory
        library.synchronize()
        np.testing.assert_array_equal(seen[0], np.arange(1, 1001))
        x = tensor(device, 1000)
        device.synchronize()


def test_lent_memory_returns_to_the_pool(emulation: Emulation) -> None:
    library = ForeignLibrary(emulation)
    device = emulation.device
    device.synchronize()
    used, reserved = device.memory_stats().used, 0
    for _ in range(4):
        library.from_dlpack(tensor(device, 50_000))
        library.from_interface(tensor(device, 50_000)[10:])
        device.synchronize()
        assert device.memory_stats().used == used
        assert reserved in (0, device.memory_stats().reserved)
        reserved = device.memory_stats().reserved
    for _ in range(20):
        library.from_dlpack(tensor(device, 50_000))
        emulation.library.finish()
    assert device.memory_stats().used <= used + 3 * 65536 * 4, "the next export takes it back without waiting"


def test_lent_memory_is_available_before_the_device_is_out_of_memory(emulate: Any) -> None:
    emulation = emulate(capacity=8 << 20)
    library = ForeignLibrary(emulation)
    for _ in range(3):
        library.from_dlpack(ph.ones((5 << 18,), device=emulation.device))  # 5 MiB of 8
    assert ph.ones((6 << 18,), device=emulation.device).sum().item() == 6 << 18


def test_the_memory_lives_as_long_as_the_other_library_uses_it(emulation: Emulation) -> None:
    library = ForeignLibrary(emulation)
    x = tensor(emulation.device, 10)
    buffer = weakref.ref(x.buffer)
    taken: Any = library.from_dlpack(x[2:])
    capsule = x.__dlpack__(stream=1, max_version=(1, 0))
    del x
    gc.collect()
    assert buffer() is not None
    library.synchronize()
    assert taken.tolist() == list(range(3, 11))
    del taken
    gc.collect()
    assert buffer() is not None, "the capsule keeps it"
    del capsule
    gc.collect()
    assert buffer() is None


def test_tensors_without_a_type_string_have_no_interface(emulation: Emulation) -> None:
    device = emulation.device
    half = ph.ones((2,), dtype="bfloat16", device=device)
    for x in (half, ph.tensor([1j], device=device)):
        assert not hasattr(x, "__cuda_array_interface__")
        with pytest.raises(AttributeError, match=r"no type string for (bfloat16|complex64); DLPack has"):
            _ = x.__cuda_array_interface__
    assert tuple(place_of(half.__dlpack__(stream=1))) == (2, 0)
    assert ph.tensor([1j], device=device).__dlpack_device__() == (1, 0), "its parts are in separate memory"
    host = ph.ones((2,), device="numpy")
    assert not hasattr(host, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="not in CUDA memory"):
        _ = host.__cuda_array_interface__


def test_the_number_of_the_device_is_its_own(emulate: Any) -> None:
    emulation = emulate(2)
    library = ForeignLibrary(emulation, 1)
    x = tensor(Device.opened("cuda:1", emulation.backends[1]), 3)
    taken = library.from_dlpack(x)
    library.synchronize()
    assert taken.tolist() == [1, 2, 3]
    assert ph.to_dlpack(x, device=True).__dlpack_device__() == (2, 1)


def test_a_recorded_step_has_no_memory_to_share(emulation: Emulation) -> None:
    def step(x: Any) -> Any:
        assert not hasattr(x + 1, "__cuda_array_interface__")
        return (x + 1).__dlpack__(stream=1)

    with pytest.raises(ph.hal.errors.CaptureError, match="only being recorded"):
        ph.jit(step, warm_up=False)(ph.ones((3,), device=emulation.device))


def test_results_of_captured_steps_are_shared(emulation: Emulation) -> None:
    library = ForeignLibrary(emulation)
    device = emulation.device
    step = ph.jit(lambda x: x * 2 + 1)
    outputs = [library.from_dlpack(step(ph.full((4,), i, device=device))) for i in range(5)]
    library.synchronize()
    assert [out.tolist() for out in outputs] == [[2.0 * i + 1] * 4 for i in range(5)]
