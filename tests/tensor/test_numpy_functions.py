"""Tensors as arguments of NumPy functions and of libraries that use NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph

UNARY = [
    "sin", "exp", "sqrt", "negative", "absolute", "floor", "rint", "isnan", "log1p", "arctan", "square", "sign", "tanh",
]  # fmt: skip
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "power", "less", "equal", "arctan2", "fmod", "remainder"]


@pytest.mark.parametrize("name", UNARY)
def test_universal_functions_are_ops_of_the_device_with_gradients(device: ph.Device, name: str) -> None:
    values = np.float32([0.5, 1.5, 2.5])
    x = ph.tensor(values, device=device, requires_grad=True)
    result = getattr(np, name)(x)
    assert isinstance(result, ph.Tensor)
    assert result.device is device
    np.testing.assert_allclose(result.numpy(), getattr(np, name)(values), rtol=1e-5)
    assert result.requires_grad is (name != "isnan")


@pytest.mark.parametrize("name", BINARY)
def test_arrays_and_tensors_mix_on_either_side(device: ph.Device, name: str) -> None:
    a, b = np.float32([0.5, 1.5, 3.0]), np.float32([2.0, 1.5, -1.0])
    x, y = ph.tensor(a, device=device), ph.tensor(b, device=device)
    want, function = getattr(np, name)(a, b), getattr(np, name)
    for result in (function(x, y), function(a, y), function(x, b), function(x, np.float32(2)), function(2.0, x)):
        assert isinstance(result, ph.Tensor)
    np.testing.assert_allclose(function(a, y).numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(function(x, b).numpy(), want, rtol=1e-5)


def test_operators_with_an_array_on_the_left_call_the_tensors(device: ph.Device) -> None:
    a, x = np.float32([[1, 2], [3, 4]]), ph.tensor([[1.0, 0.5], [2.0, 1.0]], device=device)
    pairs: list[tuple[Any, Any]] = [
        (a + x, x + a),
        (a * x, x * a),
        (a - x, -(x - a)),
        (a @ x, ph.matmul(ph.tensor(a, device=device), x)),
        (a < x, x > a),
        (a == x, x == a),
        (np.float32(2) * x, x * 2),
        (np.float64(3) + x, x + 3),
    ]
    for left, right in pairs:
        assert isinstance(left, ph.Tensor)
        assert left.dtype is right.dtype
        np.testing.assert_array_equal(left.numpy(), right.numpy())
    assert (np.float64(3) + x).dtype is ph.float32


def test_an_array_can_be_changed_in_place_by_a_tensor(device: ph.Device) -> None:
    a = np.ones(2)
    a += ph.tensor([1.0, 2.0], device=device)
    assert a.tolist() == [2, 3]
    with pytest.raises(TypeError, match="NumPy cannot write to a tensor"):
        np.add(a, 1, out=ph.ones(2, device=device))


def test_other_functions_of_numpy_return_arrays(device: ph.Device) -> None:
    values = np.float32([[3, 1], [2, 4]])
    x = ph.tensor(values, device=device)
    calls: list[Any] = [
        np.mean,
        np.std,
        np.max,
        np.sum,
        np.sort,
        np.concatenate,
        np.transpose,
        np.linalg.norm,
        np.add.reduce,
        np.cbrt,
        lambda x: np.stack([x, x]),
        lambda x: np.where(x > 1, x, 0),
        lambda x: np.clip(x, 1, 2),
        np.multiply.outer,
        lambda x: np.sum(x, axis=0, dtype=np.float64),
        np.divmod,
    ]
    for call in calls:
        arguments = (x, x) if call in (np.multiply.outer, np.divmod) else (x,)
        want = call(*(values for _ in arguments))
        got = call(*arguments)
        assert not isinstance(got, ph.Tensor)
        np.testing.assert_allclose(got, want)
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((2, 2), 2, 4)


def test_captured_steps_record_universal_functions(device: ph.Device) -> None:
    step = ph.jit(lambda x: np.sin(x) * np.float32(2) + np.ones(3, np.float32))
    x = ph.tensor([0.0, 1.0, 2.0], device=device)
    for shift in range(3):
        np.testing.assert_allclose(step(x + shift).numpy(), np.sin(x.numpy() + shift) * 2 + 1, rtol=1e-5, atol=1e-6)
    of_the_host = ph.jit(lambda x: np.mean(x))
    of_the_host(x)
    with pytest.raises(ph.errors.CaptureError):
        of_the_host(x)


def test_asarray_without_a_copy_shares_memory_where_the_device_works_in_the_hosts(numpy_device: ph.Device) -> None:
    x = ph.arange(4, dtype="float32")
    a = np.asarray(x, copy=False)
    x[1] = 7
    assert a.tolist() == [0, 7, 2, 3]
    y = ph.asarray(values := np.zeros(3, np.float32), copy=False)
    y += 1
    assert values.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, np.float64, copy=False)
    with pytest.raises(ValueError, match="copy"):
        ph.asarray([1.0], copy=False)


def test_a_unary_plus_is_the_tensor(device: ph.Device) -> None:
    x = ph.tensor([1.0, -2.0], device=device)
    assert (+x).tolist() == [1, -2]
    x += 0.0
    assert ph.jit(lambda x: +x + 1)(x).tolist() == [2, -1]


def test_matplotlib_and_pillow(device: ph.Device) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    image = pytest.importorskip("PIL.Image")
    pyplot.switch_backend("Agg")
    x = ph.tensor([1.0, 4.0, 9.0], device=device, requires_grad=True)
    (line,) = pyplot.plot(x.detach(), x)
    np.testing.assert_array_equal(line.get_ydata(), x.numpy())
    counts, _, bars = pyplot.hist(x, bins=2)  # one data set, as an array is
    assert counts.tolist() == np.histogram(x.numpy(), 2)[0].tolist() == [2, 1]
    assert len(bars) == 2
    pyplot.close("all")
    pixels = ph.zeros((2, 3), dtype="uint8", device=device)
    with pytest.raises(AttributeError, match=r"x\.numpy\(\)"):
        image.fromarray(pixels)
    assert image.fromarray(pixels.numpy()).size == (3, 2)
