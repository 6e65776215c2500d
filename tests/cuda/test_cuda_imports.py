"""Arrays of other CUDA libraries as tensors: DLPack and the CUDA array interface, the order of streams, lifetimes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulated_backend import Emulation
from foreign_library import ForeignArray, ForeignLibrary, InterfaceArray, UnversionedArray

import polyhal as ph
from polyhal.hal.device import Device
from polyhal.hal.errors import UnsupportedDTypeError

Import = Callable[..., ph.Tensor]


def _by_interface(array: ForeignArray, **options: Any) -> ph.Tensor:
    return ph.asarray(InterfaceArray(array), **options)


IMPORTS = pytest.mark.parametrize(
    "take",
    [ph.from_dlpack, lambda x, **o: ph.from_dlpack(UnversionedArray(x.library, x.memory), **o), _by_interface],
    ids=["capsule", "unversioned", "interface"],
)


def address_of(x: ph.Tensor) -> int:
    return int(x.__cuda_array_interface__["data"][0])


@IMPORTS
@pytest.mark.parametrize("own_stream", [False, True])
def test_the_device_works_in_the_memory_after_the_other_library(
    emulation: Emulation, take: Import, own_stream: bool
) -> None:
    library = ForeignLibrary(emulation, own_stream=own_stream)
    array = library.array(np.arange(12).reshape(3, 4))
    with emulation.library.logged() as calls:
        x = take(array, device=emulation.device)
    assert not [name for name in calls if "Synchronize" in name or name in ("cuMemAllocAsync", "cuMemcpyDtoDAsync_v2")]
    assert address_of(x) == array.address
    np.testing.assert_array_equal(x.numpy(), np.arange(12).reshape(3, 4))
    x *= 2
    emulation.device.synchronize()
    np.testing.assert_array_equal(array.memory, 2 * np.arange(12).reshape(3, 4))
    array.add(1)
    again = take(array, device=emulation.device)  # makes the device wait for the addition
    np.testing.assert_array_equal(x.numpy(), 2 * np.arange(12).reshape(3, 4) + 1)
    np.testing.assert_array_equal(again.numpy(), x.numpy())


@IMPORTS
def test_any_layout_is_shared(emulation: Emulation, take: Import) -> None:
    library = ForeignLibrary(emulation)
    array = library.array(np.arange(48).reshape(6, 8))
    rows = ForeignArray(library, np.broadcast_to(array.memory[2], (3, 8)))
    rows.memory.flags.writeable = True
    for view in (array[1:, ::3], array[::-1, ::-2], array[3], array[5, 7, ...], array[:, 1:2], rows):
        x = take(view, device=emulation.device)
        assert x.shape == view.memory.shape
        assert tuple(n * 4 for n in x.strides) == view.memory.strides
        assert address_of(x) == view.address
        np.testing.assert_array_equal(x.numpy(), view.memory)
        np.testing.assert_array_equal((x + 1).numpy(), view.memory + 1)
    x = take(array[::-1, ::-2], device=emulation.device)
    x.zero_()
    emulation.device.synchronize()
    assert not array.memory[:, 1::2].any()
    np.testing.assert_array_equal(array.memory[:, ::2], np.arange(48).reshape(6, 8)[:, ::2])


@IMPORTS
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "int64", "float16", "float64"])
def test_dtypes_are_kept(emulation: Emulation, take: Import, dtype: str) -> None:
    array = ForeignLibrary(emulation).array([0, 1, 1, 0, 1], dtype)
    x = take(array[1:], device=emulation.device)
    assert x.dtype.numpy == np.dtype(dtype)
    assert address_of(x) == array.address + array.memory.itemsize
    assert x.tolist() == [1, 1, 0, 1]


@IMPORTS
def test_complex_numbers_are_shared_as_their_parts(emulation: Emulation, take: Import) -> None:
    array = ForeignLibrary(emulation).array([[1 + 2j, 3 - 1j], [0, 1j]], np.complex64)
    x = take(array, device=emulation.device)
    assert x.dtype is ph.complex64
    np.testing.assert_array_equal(x.numpy(), array.memory)
    x *= 1j
    emulation.device.synchronize()
    np.testing.assert_array_equal(array.memory, 1j * np.array([[1 + 2j, 3 - 1j], [0, 1j]], np.complex64))


@IMPORTS
def test_empty_arrays_have_shape_and_dtype(emulation: Emulation, take: Import) -> None:
    x = take(ForeignLibrary(emulation).array(np.zeros((0, 3)), "int16"), device=emulation.device)
    assert (x.shape, x.dtype, x.device) == ((0, 3), ph.int16, emulation.device)
    assert x.tolist() == []


@pytest.mark.parametrize("take", [ph.from_dlpack, _by_interface])
def test_read_only_arrays_are_copied_on_the_device(emulation: Emulation, take: Import) -> None:
    array = ForeignLibrary(emulation).array([1, 2, 3])
    array.library.synchronize()
    array.memory.flags.writeable = False
    with emulation.library.logged() as calls:
        x = take(array, device=emulation.device)
        x += 1
    assert "cuMemcpyDtoHAsync_v2" not in calls
    assert x.tolist() == [2, 3, 4]
    assert array.memory.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="takes a copy: the array is read-only"):
        take(array, device=emulation.device, copy=False)


def test_copies_are_made_as_requested(emulation: Emulation) -> None:
    device = emulation.device
    array = ForeignLibrary(emulation).array([1, 2, 3])
    source = InterfaceArray(array)
    for x in (
        ph.from_dlpack(array, device=device, copy=True),
        ph.from_dlpack(source, device=device, copy=True),
        ph.asarray(source, device=device, copy=True),
        ph.asarray(source, dtype="float16", device=device),
        ph.tensor(source, device=device),
        ph.tensor(source, dtype="int32", device=device),
    ):
        x += 1
        assert x.tolist() == [2, 3, 4]
    assert array.memory.tolist() == [1, 2, 3]
    assert address_of(ph.asarray(source, device=device, copy=False)) == array.address
    with pytest.raises(ValueError, match="takes a copy"):
        ph.asarray(source, dtype="float16", device=device, copy=False)
    assert ph.tensor(source, device=device, requires_grad=True).requires_grad


@pytest.mark.parametrize("own_stream", [False, True])
def test_a_copied_array_may_change_right_after_the_call(emulation: Emulation, own_stream: bool) -> None:
    library, device = ForeignLibrary(emulation, own_stream=own_stream), emulation.device
    copies: list[Callable[[Any], ph.Tensor]] = [
        lambda x: ph.tensor(x, device=device),
        lambda x: ph.tensor(x, dtype="float64", device=device),
        lambda x: ph.Tensor(x, device=device),
        lambda x: ph.asarray(x, device=device, copy=True),
    ]
    for copy in copies:
        array = library.array([1, 2, 3])
        x = copy(InterfaceArray(array))
        array.add(7)
        library.synchronize()  # the library runs first
        assert array.memory.tolist() == [8, 9, 10]
        assert x.tolist() == [1, 2, 3]


def test_arrays_are_operands_and_initial_values(emulation: Emulation) -> None:
    library, device = ForeignLibrary(emulation), emulation.device
    array = library.array([1, 2, 3])
    given: Any = InterfaceArray(array)
    x = ph.zeros((3,), device=device)
    x[...] = given
    x += given
    x.copy_(x + given)
    assert ph.add(x, given).tolist() == [4, 8, 12]
    layer = ph.nn.Linear(3, 3, device=device)
    layer.load_state_dict({**layer.state_dict(), "bias": given})
    with emulation.library.logged() as calls, device:
        made = [ph.Tensor(given), ph.nn.Parameter(given), layer.bias]
        for own in made:
            own.detach().add_(1)
    assert "cuMemcpyDtoHAsync_v2" not in calls
    assert [own.tolist() for own in made] == [[2, 3, 4]] * 3
    assert array.memory.tolist() == [1, 2, 3]


@IMPORTS
def test_the_array_lives_until_the_work_on_it_is_done(emulation: Emulation, take: Import) -> None:
    library, device = ForeignLibrary(emulation), emulation.device
    array = library.array(np.arange(1000))
    gone = weakref.ref(array.memory)
    x = take(array, device=device)
    view = x[10:]
    del array, x
    emulation.library.finish()
    library.machine.devices[0].context.default.last = None  # which has the closure that wrote the values
    gc.collect()
    assert gone() is not None, "a view needs it"
    total = (view + 1).sum()
    del view
    gc.collect()
    other = library.array([1.0])
    ph.from_dlpack(other, device=device)
    assert gone() is not None, "work on it has not run"
    emulation.library.finish()
    ph.from_dlpack(other, device=device)
    gc.collect()
    assert gone() is None, "the next import releases it without waiting"
    assert total.item() == sum(range(10, 1000)) + 990


def test_imports_in_a_loop_neither_wait_nor_accumulate(emulation: Emulation) -> None:
    library, device = ForeignLibrary(emulation), emulation.device
    total = ph.zeros((100,), device=device)
    gone: list[Any] = []
    device.synchronize()
    with emulation.library.logged() as calls:
        for step in range(10):
            array = library.array(np.full(100, step))
            gone.append(weakref.ref(array.memory))
            total += ph.from_dlpack(array, device=device)
    assert not [name for name in calls if "Synchronize" in name]
    assert device.memory_stats().used <= 3 * 512
    del array
    device.synchronize()
    emulation.library.finish()
    library.queue.last = None
    gc.collect()
    assert [ref() for ref in gone] == [None] * 10
    assert set(total.tolist()) == {45.0}


def test_releasing_an_import_leaves_the_memory(emulation: Emulation) -> None:
    library, device = ForeignLibrary(emulation), emulation.device
    array = library.array([1, 2, 3])
    first, second = (ph.from_dlpack(array, device=device) for _ in range(2))
    del first
    device.synchronize()
    second += 1
    device.synchronize()
    assert array.memory.tolist() == [2, 3, 4]
    reserved = device.memory_stats().reserved
    device.empty_cache()
    assert device.memory_stats().reserved <= reserved


def test_an_import_can_be_exported_again(emulation: Emulation) -> None:
    library = ForeignLibrary(emulation, own_stream=True)
    array = library.array(np.arange(6))
    x = ph.from_dlpack(array, device=emulation.device)
    x += 1
    taken = library.from_dlpack(x[2:])
    del x
    assert taken.ctypes.data == array.address + 8
    library.synchronize()
    assert taken.tolist() == [3, 4, 5, 6]


def test_captured_steps_read_and_write_imported_arrays(emulation: Emulation) -> None:
    library, device = ForeignLibrary(emulation), emulation.device

    @ph.jit
    def step(x: ph.Tensor, total: ph.Tensor) -> ph.Tensor:
        total += x
        return x * 2

    total = library.array(np.zeros(4))
    shared = ph.from_dlpack(total, device=device)
    for i in range(5):
        array = library.array(np.full(4, i))
        out = step(ph.from_dlpack(array[::-1], device=device), shared)
        assert out.tolist() == [2 * i] * 4
    device.synchronize()
    assert total.memory.tolist() == [10] * 4


def test_gradients_of_imported_leaves(emulation: Emulation) -> None:
    library = ForeignLibrary(emulation)
    x = ph.from_dlpack(library.array([1, 2, 3]), device=emulation.device).requires_grad_()
    (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 4, 6]
    grad = library.from_dlpack(x.grad)
    library.synchronize()
    assert grad.tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"typestr": "<V2"}, UnsupportedDTypeError, "from_dlpack for bfloat16"),
        ({"typestr": "<U4"}, UnsupportedDTypeError, "elements of type '<U4'"),
        ({"mask": object()}, BufferError, "the array has a mask"),
        ({"strides": (6,)}, BufferError, "do not fit elements of 4 bytes"),
        ({"stream": 0}, ValueError, "names the stream 0"),
        ({"data": (64, False)}, BufferError, "0x40 is not an address of CUDA memory"),
    ],
)
def test_wrong_interfaces_are_refused_with_their_values(
    emulation: Emulation, changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    array = ForeignLibrary(emulation).array([1, 2, 3])
    with pytest.raises(error, match=text):
        ph.asarray(InterfaceArray(array, **changes), device=emulation.device)


def test_an_interface_without_a_stream_is_ordered_by_its_owner(emulation: Emulation) -> None:
    library = ForeignLibrary(emulation)
    array = library.array([1, 2, 3])
    library.synchronize()
    with emulation.library.logged() as calls:
        x = ph.asarray(InterfaceArray(array, stream=None), device=emulation.device)
    assert "cuStreamWaitEvent" not in calls
    assert x.tolist() == [1, 2, 3]


class _WrongCapsule(ForeignArray):
    def __dlpack__(self, **options: Any) -> Any:
        return "nothing"


def test_an_object_that_is_not_a_capsule_is_refused(emulation: Emulation) -> None:
    array = ForeignLibrary(emulation).array([1])
    with pytest.raises(BufferError, match="__dlpack__ returned 'nothing'; expected a capsule"):
        ph.from_dlpack(_WrongCapsule(array.library, array.memory), device=emulation.device)


@pytest.fixture
def machine(emulate: Any, monkeypatch: pytest.MonkeyPatch) -> Emulation:
    """Two emulated devices, which `Device("cuda:0")` and `Device("cuda:1")` open."""
    from polyhal.hal.system.discovery.registry import registry

    emulation: Emulation = emulate(2)
    devices = {f"cuda:{i}": Device.opened(f"cuda:{i}", backend) for i, backend in enumerate(emulation.backends)}
    monkeypatch.setattr(registry(), "_open", {**registry()._open, **devices})
    return emulation


@pytest.mark.parametrize("take", [ph.from_dlpack, _by_interface])
def test_the_device_of_the_array_is_the_default(machine: Emulation, take: Import) -> None:
    for ordinal in (0, 1):
        array = ForeignLibrary(machine, ordinal).array([1, 2, 3])
        x = take(array)
        assert x.device is Device(f"cuda:{ordinal}")
        assert address_of(x) == array.address
        assert x.tolist() == [1, 2, 3]


@pytest.mark.parametrize("take", [ph.from_dlpack, _by_interface])
def test_other_devices_receive_a_copy(machine: Emulation, take: Import) -> None:
    array = ForeignLibrary(machine, 1).array([1, 2, 3])
    for name in ("cuda:0", "numpy"):
        x = take(array, device=name)
        assert x.device is Device(name)
        assert x.tolist() == [1, 2, 3]
        x += 1
        with pytest.raises(ValueError, match="takes a copy"):
            take(array, device=name, copy=False)
    assert array.memory.tolist() == [1, 2, 3]


def test_memory_of_an_unknown_device_is_copied_by_its_library_or_refused(emulation: Emulation) -> None:
    array = ForeignLibrary(emulation).array([1, 2, 3])

    class Copying(ForeignArray):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 77

        def __dlpack__(self, *, dl_device: Any = None, copy: Any = None, **options: Any) -> Any:
            assert (dl_device, copy) == ((1, 0), True)
            self.library.synchronize()
            return self.memory.copy().__dlpack__()

    class Refusing(Copying):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("no copies")

    assert ph.from_dlpack(Copying(array.library, array.memory), device="numpy").tolist() == [1, 2, 3]
    with pytest.raises(BufferError, match=r"memory of cuda:77, which Polyhal cannot use.*host's memory first"):
        ph.from_dlpack(Refusing(array.library, array.memory), device="numpy")
