"""Eager dispatch: dtypes of numbers, devices of inputs, plans, writing over existing tensors, and fallbacks to the
host.
"""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from op_patches import patch_lowering

import polyhal
from polyhal import Tensor
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import DeviceMismatchError, FallbackRefusedError, ShapeError, UnsupportedDTypeError
from polyhal.hal.ops import OPS


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        (dtypes.float32, 2.5, dtypes.float32),
        (dtypes.float16, 2.5, dtypes.float16),
        (dtypes.bfloat16, 3, dtypes.bfloat16),
        (dtypes.int32, 3, dtypes.int32),
        (dtypes.int32, 2.5, dtypes.float32),
        (dtypes.uint8, 3, dtypes.uint8),
        (dtypes.bool_, 3, dtypes.int64),
        (dtypes.bool_, 2.5, dtypes.float32),
        (dtypes.int8, True, dtypes.int8),
    ],
)
def test_a_number_keeps_the_tensors_dtype(dtype: DType, number: float, expected: DType, device: Device) -> None:
    x = Tensor([1, 0, 1], dtype=dtype, device=device)
    assert (x * number).dtype is expected
    assert (number + x).dtype is expected
    np.testing.assert_allclose((x * number).numpy().astype(np.float64), np.array([1, 0, 1]) * number)


def test_numpy_numbers_count_as_python_numbers(numpy_device: Device) -> None:
    x = polyhal.ones((2,), device=numpy_device)
    assert (x * np.float32(2)).dtype is dtypes.float32
    assert (x * np.float64(2)).dtype is dtypes.float32
    assert (x + np.int64(2)).dtype is dtypes.float32
    assert (np.array([1, 2]) + x).dtype is dtypes.float32
    assert isinstance(np.ones(2, np.float32) + x, Tensor)


def test_mixed_devices_are_refused(numpy_device: Device) -> None:
    other = Device("numpy:no_f64")
    a, b = polyhal.ones((2,), device=numpy_device), polyhal.ones((2,), device=other)
    with pytest.raises(
        DeviceMismatchError,
        match=r"\[add\] inputs lie on numpy and numpy:no_f64; expected one device; move them with .to",
    ):
        a + b
    np.testing.assert_array_equal((a + b.to(numpy_device)).numpy(), [2, 2])


def test_one_plan_per_kind_of_call(numpy_device: Device) -> None:
    target = Device.opened("numpy", numpy_device.backend)
    x, y = polyhal.ones((3, 4), device=target), polyhal.ones((3, 4), device=target)
    x + y
    count = len(target.plans)
    for _ in range(3):
        y + x
        x + x
    assert len(target.plans) == count
    x + 1
    x + 2
    x + 1.0
    assert len(target.plans) == count + 2
    x.mT + y.mT
    assert len(target.plans) == count + 4  # the view and the sum of transposed layouts


def test_a_plan_survives_lists_and_numpy_integers_as_parameters(device: Device) -> None:
    x = polyhal.ones((2, 3), device=device)
    assert x.reshape([3, 2]).shape == (3, 2)
    assert x.sum(axis=[0]).shape == (3,)
    assert x.reshape((np.int64(6),)).shape == (6,)


def test_dtype_that_the_device_lacks(device: Device) -> None:
    target = Device("numpy:no_f64")
    with pytest.raises(UnsupportedDTypeError, match="no float64 on this device"):
        polyhal.ones((2,), dtype="float64", device=target)
    with pytest.raises(UnsupportedDTypeError, match=r"\[cast\] no float64 on this device; expected one of .*float32"):
        polyhal.ones((2,), device=target).to("float64")


def test_dtype_that_the_op_does_not_take(device: Device) -> None:
    flags = Tensor([True, False], device=device)
    with pytest.raises(UnsupportedDTypeError, match=r"\[subtract\] got bool_; expected numbers"):
        flags - flags
    with pytest.raises(UnsupportedDTypeError, match=r"\[bitwise_and\] got float32; expected integers or bool"):
        polyhal.ones((2,), device=device) & 1


def test_shape_errors_name_op_and_shapes(device: Device) -> None:
    with pytest.raises(ShapeError, match=r"\[add\] shapes \(2,\) and \(3,\) do not broadcast"):
        polyhal.ones((2,), device=device) + polyhal.ones((3,), device=device)
    with pytest.raises(ShapeError, match=r"\[matmul\] inner lengths differ: \(2, 3\) @ \(2, 3\)"):
        polyhal.ones((2, 3), device=device) @ polyhal.ones((2, 3), device=device)


# --- writing over existing tensors ----------------------------------------------------------------------------------


def test_into_a_separate_tensor(device: Device) -> None:
    a, b, out = (Tensor([1.0, 2.0, 3.0], device=device) for _ in range(3))
    version = out.buffer.version
    dispatch.apply_into(OPS["add"], (a, b), (), (out,))
    assert out.tolist() == [2.0, 4.0, 6.0]
    assert out.buffer.version == version + 1


def test_into_an_input(device: Device) -> None:
    a, b = Tensor([1.0, 2.0, 3.0], device=device), Tensor([10.0, 20.0, 30.0], device=device)
    dispatch.apply_into(OPS["subtract"], (a, b), (), (b,))
    assert b.tolist() == [-9.0, -18.0, -27.0]


def test_into_a_view_that_overlaps_an_input(device: Device) -> None:
    x = Tensor(np.arange(8, dtype=np.float32), device=device)
    dispatch.apply_into(OPS["add"], (x[:-1], 1.0), (), (x[1:],))
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_into_a_reversed_view_of_an_input(device: Device) -> None:
    x = Tensor(np.arange(5, dtype=np.float32), device=device)
    dispatch.apply_into(OPS["negative"], (x,), (), (x[::-1],))
    assert x.tolist() == [-4.0, -3.0, -2.0, -1.0, 0.0]


def test_into_a_strided_view_leaves_the_gaps(device: Device) -> None:
    x = Tensor(np.zeros((3, 4), np.float32), device=device)
    dispatch.apply_into(OPS["add"], (polyhal.ones((3, 2), device=device), 1.0), (), (x[:, ::2],))
    assert x.tolist() == [[2.0, 0.0, 2.0, 0.0]] * 3


def test_into_an_input_that_is_read_again_later(device: Device) -> None:
    """A decomposition must not overwrite an input that one of its later ops still reads."""
    values = np.linspace(-3, 3, 7).astype(np.float32)
    x = Tensor(values, device=device)
    dispatch.apply_into(OPS["gelu"], (x,), ("tanh",), (x,))
    expected = OPS["gelu"].reference(values, approximate="tanh")
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "dtype"), [((4,), "float32"), ((3,), "float16")])
def test_into_the_wrong_kind_of_tensor(shape: tuple[int, ...], dtype: str, device: Device) -> None:
    x = polyhal.ones((3,), device=device)
    with pytest.raises(ShapeError, match=r"\[add\] the result is float32\[3\]; expected the target's"):
        dispatch.apply_into(OPS["add"], (x, x), (), (polyhal.ones(shape, dtype=dtype, device=device),))


# --- fallbacks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_tanh(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Open a device that can neither run nor decompose tanh."""
    patch_lowering(monkeypatch, OPS["tanh"], *OPS["tanh"].lowering[:-1])
    return Device.opened("poor", Device("numpy:contiguous_only").backend)


def test_fallback_refused(without_tanh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    x = polyhal.ones((2, 2), device=without_tanh)
    with pytest.raises(
        FallbackRefusedError,
        match=r"\[tanh\] float32\[2, 2\] would run on the host and move 32 bytes: .*POLYHAL_FALLBACK",
    ):
        x.tanh()
    assert (x + x).tolist() == [[2.0, 2.0]] * 2


def test_fallback_warns_once_per_op(without_tanh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "warn")
    with pytest.warns(UserWarning, match=r"\[tanh\] runs on the host and moves 32 bytes per call"):
        out = polyhal.ones((2, 2), device=without_tanh).tanh()
    np.testing.assert_allclose(out.numpy(), np.tanh(np.ones((2, 2))), rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polyhal.ones((3,), device=without_tanh).tanh()


def test_fallback_allowed_is_silent(without_tanh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = polyhal.ones((3,), device=without_tanh).tanh()
    assert out.device is without_tanh


def test_fallback_policy_must_be_known(without_tanh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "maybe")
    with pytest.raises(ValueError, match="expected error, warn, allow or declared"):
        polyhal.ones((3,), device=without_tanh).tanh()


# --- threads --------------------------------------------------------------------------------------------------------


def test_threads_share_a_device(device: Device) -> None:
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            x = polyhal.full((37,), float(k), device=device)
            for _ in range(30):
                y = (x * 2.0 + 1.0).sum()
                assert y.item() == 37 * (2 * k + 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
