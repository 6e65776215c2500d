"""PyTorch's names for tensor functions: from_numpy, data, size(), device."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn


def test_from_numpy_copies(numpy_device: ph.Device) -> None:
    a = np.arange(3.0)
    x = ph.from_numpy(a)
    a[0] = 9
    assert (x.tolist(), x.dtype) == ([0, 1, 2], ph.float64)
    assert ph.from_numpy(np.array([1j])).dtype is ph.complex128
    with pytest.raises(TypeError, match="expected a NumPy array"):
        ph.from_numpy([1.0])  # type: ignore[arg-type]


def test_size_is_a_number_and_a_method(numpy_device: ph.Device) -> None:
    x = ph.zeros(2, 3)
    assert (x.size, x.size + 1, x.size(), x.size(0), x.size(-1), x.size(dim=1)) == (6, 7, (2, 3), 2, 3, 3)
    assert json.dumps(x.size) == "6"
    assert ph.jit(lambda x: x.reshape(x.size(0) * x.size(1)))(x).shape == (6,)
    with pytest.raises(IndexError):
        x.size(2)


def test_data_shares_memory_off_the_tape(device: ph.Device) -> None:
    x = ph.ones(3, device=device, requires_grad=True)
    assert not x.data.requires_grad
    x.data[0] = 5
    x.data.mul_(2)
    assert x.tolist() == [10, 2, 2]
    (x * x).sum().backward()
    x.data -= 0.5 * x.grad
    assert x.tolist() == [0, 0, 0]
    assert x.requires_grad


def test_data_takes_over_the_memory_of_another_tensor(device: ph.Device) -> None:
    layer, other = nn.Linear(2, 2, device=device), ph.ones(3, 2, device=device)
    step = ph.jit(lambda x: layer(x).sum())
    x = ph.ones(1, 2, device=device)
    step(x), step(x)
    layer.bias = None
    weight = layer.weight
    weight.data = other
    other[0, 0] = 4
    assert weight.tolist() == [[4, 1], [1, 1], [1, 1]]
    assert layer.weight is weight
    assert step(x).item() == 9
    weight.data = ph.zeros(1, 2, device="numpy", dtype="float64")
    assert (weight.device.name, weight.dtype, weight.requires_grad) == ("numpy", ph.float64, True)
    with pytest.raises(TypeError, match="expected a tensor"):
        weight.data = 3  # type: ignore[assignment]
    with pytest.raises(TypeError, match="complex"):
        weight.data = ph.tensor([1j], device=device)


def test_data_of_a_captured_step_is_written_and_not_replaced(device: ph.Device) -> None:
    w = nn.Parameter(ph.ones(2, device=device))

    def write(x: ph.Tensor) -> None:
        w.data.copy_(x * 2)

    step = ph.jit(write)
    for n in range(3):
        step(ph.full((2,), float(n), device=device))
        assert w.tolist() == [2 * n, 2 * n]

    def replace(x: ph.Tensor) -> None:
        w.data = x * 2

    step = ph.jit(replace)
    step(w.detach())
    with pytest.raises(ph.errors.CaptureError, match="copy_"):
        step(w.detach())


def test_device_is_a_class_with_type_and_index() -> None:
    device = ph.device("numpy")
    assert isinstance(device, ph.device)
    assert (device.type, device.index, str(device)) == ("cpu", None, "numpy")
    assert ph.device(device) is device
    with pytest.raises(ph.errors.DeviceUnavailableError, match="unknown backend 'mps'"):
        ph.device("mps", 0)


def test_a_device_is_a_block_of_its_thread() -> None:
    plain, other = ph.device("numpy"), ph.device("numpy:no_f64")
    seen = []
    with plain:
        with other:
            with plain:
                assert ph.zeros(1).device is plain
            assert ph.tensor(1.0).device is other
            thread = threading.Thread(target=lambda: seen.append(ph.get_default_device()))
            thread.start()
            thread.join()
        assert ph.rand(1).device is plain
    assert seen == [ph.Device.default()]


def test_cpu_is_the_default_device_if_that_is_one() -> None:
    ph.set_default_device("numpy:no_f64")
    try:
        assert ph.zeros(1).to("cpu").device.name == "numpy:no_f64"
        assert ph.zeros(1, device="numpy").cpu().device.name == "numpy:no_f64"
    finally:
        ph.set_default_device(None)


def test_add_takes_alpha(device: ph.Device) -> None:
    x = ph.tensor([1.0, 2.0], device=device, requires_grad=True)
    result = ph.add(x, ph.ones(2, device=device), alpha=3)
    assert result.tolist() == [4, 5]
    x.add(x, alpha=2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]
    assert ph.add(x, 1).tolist() == [2, 3]


def test_memory_formats_are_accepted_and_change_nothing(numpy_device: ph.Device) -> None:
    x = ph.rand(2, 3, 4, 4)
    for name in ("contiguous_format", "preserve_format", "channels_last"):
        order = getattr(ph, name)
        assert repr(order) == f"polyhal.{name}"
        for y in (
            x.to(memory_format=order),
            x.clone(memory_format=order),
            x.contiguous(memory_format=order),
            ph.clone(x, memory_format=order),
            ph.zeros_like(x, memory_format=order) + x,
        ):
            assert y.tolist() == x.tolist()
        layer = nn.Conv2d(3, 2, 1).to("numpy", memory_format=order)
        assert layer(x).shape == (2, 2, 4, 4)
    assert ph.rand_like(x, memory_format=ph.channels_last).shape == x.shape
