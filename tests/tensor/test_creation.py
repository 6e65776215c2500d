"""Creation of tensors: shapes in every accepted form, the keywords of PyTorch, and numbers as PyTorch spaces them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.hal.core import dispatch
from polyhal.hal.errors import ShapeError


@pytest.mark.parametrize("make", [ph.zeros, ph.ones, ph.empty, ph.rand, ph.randn], ids=lambda f: f.__name__)
def test_lengths_may_be_separate_arguments(make: Callable[..., ph.Tensor], numpy_device: ph.Device) -> None:
    shapes = [make(2, 3, 4), make((2, 3, 4)), make([2, 3, 4]), make(size=(2, 3, 4))]
    assert {x.shape for x in shapes} == {(2, 3, 4)}
    assert make(3).shape == (3,)
    assert make().shape == make(()).shape == ()
    assert make(2, np.int64(3), dtype="float16").dtype is ph.float16
    with pytest.raises(TypeError, match="is no shape"):
        make(2, "float32")
    with pytest.raises(ShapeError, match="negative length"):
        make(2, -1)


def test_dtype_and_device_may_follow_a_tuple(numpy_device: ph.Device) -> None:
    x = ph.zeros((2,), "int32", "numpy")
    assert (x.dtype, x.device.name) == (ph.int32, "numpy")
    assert ph.ones((2,), None, None, True).requires_grad


def test_full_infers_the_dtype_of_its_number(numpy_device: ph.Device) -> None:
    made = [ph.full((2,), v) for v in (True, 3, 1.5, ph.tensor(2.0))]
    assert [x.dtype for x in made] == [ph.bool_, ph.int64, ph.float32, ph.float32]
    assert ph.full(size=(2,), fill_value=7, dtype=ph.uint8).tolist() == [7, 7]
    assert ph.full_like(made[0], 2.0, dtype=ph.float64, requires_grad=True).requires_grad
    with pytest.raises(TypeError, match="cannot fill with"):
        ph.full((2,), "x")


def test_tensors_made_by_methods_have_the_dtype_and_device_of_the_tensor(device: ph.Device) -> None:
    x = ph.ones((2,), dtype="float16", device=device)
    made = [x.new_zeros(3), x.new_ones((3,)), x.new_empty(3), x.new_full((3,), 2), x.new_tensor([1, 2, 3])]
    assert {(m.shape, m.dtype, m.device) for m in made} == {((3,), ph.float16, device)}
    assert x.new_zeros(2, dtype=ph.int64, device="numpy").device.name == "numpy"


@pytest.mark.parametrize("bounds", [(5,), (2, 7), (1.0, 2.0, 0.25), (5, 0, -2)])
def test_ranges(bounds: tuple[Any, ...], numpy_device: ph.Device) -> None:
    expected = torch.arange(*bounds)
    found = ph.arange(*bounds)
    assert found.tolist() == expected.tolist()
    assert found.dtype.name == str(expected.dtype).removeprefix("torch.")


def test_ranges_by_keyword(numpy_device: ph.Device) -> None:
    assert ph.arange(end=3).tolist() == ph.arange(stop=3).tolist() == [0, 1, 2]
    assert ph.arange(start=1, end=3, dtype=ph.float32, requires_grad=True).requires_grad
    assert ph.linspace(0, 1, steps=3).tolist() == ph.linspace(start=0, end=1, num=3).tolist() == [0, 0.5, 1]
    np.testing.assert_allclose(ph.logspace(0, 2, 3).tolist(), [1, 10, 100])
    assert ph.linspace(-2, 9, 5, dtype=ph.int64).tolist() == torch.linspace(-2, 9, 5, dtype=torch.int64).tolist()
    with pytest.raises(TypeError, match="stop"):
        ph.arange()


def test_constants() -> None:
    """Functions of the Array API, which PyTorch has, too."""
    assert [ph.e, ph.pi, ph.inf, ph.newaxis] == [np.e, np.pi, np.inf, None]
    assert np.isnan(ph.nan)
    assert ph.zeros(3)[:, ph.newaxis].shape == (3, 1)


def test_the_default_device_of_a_block_holds_for_all_that_makes_tensors() -> None:
    """Also for models, so that loading one for a device, or reading data in a worker, opens no other."""
    target = ph.Device("numpy:contiguous_only")
    makers: list[Callable[[], ph.Tensor]] = [
        lambda: ph.tensor([1.0]),
        lambda: ph.zeros((2,)),
        lambda: ph.arange(3),
        lambda: ph.eye(2),
        lambda: ph.rand(2),
        lambda: ph.randint(0, 5, (2,)),
        lambda: ph.full((2,), 1.5),
        lambda: ph.linspace(0, 1, 3),
    ]
    with dispatch.default_device(target):
        assert all(make().device is target for make in makers)
        model = ph.nn.Sequential(ph.nn.Conv1d(2, 2, 1), ph.nn.BatchNorm1d(2), ph.nn.LSTM(2, 2))
        assert all(x.device is target for x in (*model.parameters(), *model.buffers()))
    assert ph.zeros((2,)).device is ph.Device()


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("bounds", [(0.0, 8.000001, 4.0), (2.9, 7.1, 2.0), (-0.9, 2.1, 2.0), (3.1,)])
def test_a_range_of_integers_between_fractions_is_pytorchs(dtype: str, bounds: tuple[float, ...]) -> None:
    expected = torch.arange(*bounds, dtype=getattr(torch, dtype))
    assert ph.arange(*bounds, dtype=dtype, device="numpy").tolist() == expected.tolist()


def test_a_range_of_int64_needs_a_step_of_at_least_one() -> None:
    with pytest.raises(ValueError, match=r"step 0\.5"):
        ph.arange(0, 2, 0.5, dtype="int64", device="numpy")


@pytest.mark.parametrize("bounds", [(0, 1.2, 4, 10.0), (4.3, -3, 4, 3.0), (2, 1.2, 4, 5.5)])
def test_integers_on_a_logarithmic_scale_are_pytorchs(bounds: tuple[float, float, int, float]) -> None:
    expected = torch.logspace(*bounds, dtype=torch.int64)
    assert ph.logspace(*bounds, dtype="int64", device="numpy").tolist() == expected.tolist()


def test_sum_to_size_undoes_broadcasting(device: ph.Device) -> None:
    x = ph.ones((2, 3, 4), device=device)
    assert x.sum_to_size(3, 1).tolist() == [[8.0]] * 3
    assert x.sum_to_size((1,)).tolist() == [24.0]
    with pytest.raises(ValueError, match="does not broadcast"):
        x.sum_to_size(2, 3)


def _uninitialized(device: ph.Device) -> list[ph.Tensor]:
    like = ph.ones((2,), dtype="int32", device=device)
    made = [
        ph.empty(3, 4, device=device),
        ph.empty_like(like),
        like.new_empty(5),
        ph.empty(2, dtype="bool", device=device),
    ]
    return [*made, ph.empty(2, dtype="complex64", device=device).imag]


def test_uninitialized_memory_is_not_filled(device: ph.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    like = ph.ones((2,), device=device)
    monkeypatch.setattr(device.backend, "fill", lambda value, out: pytest.fail("memory is filled"))
    device.plans.clear()  # plans hold bound methods
    try:
        assert [x.shape for x in (ph.empty(3, device=device), ph.empty_like(like))] == [(3,), (2,)]
    finally:
        device.plans.clear()


def test_debug_mode_poisons_uninitialized_memory(device: ph.Device) -> None:
    step = ph.jit(lambda x: ph.empty(2, device=device) + x)
    for _ in range(3):
        step(ph.ones(2, device=device))
    ph.debug()
    try:
        floats, integers, more, flags, imaginary = (x.numpy() for x in _uninitialized(device))
        assert np.isnan(floats).all()
        assert np.isnan(imaginary).all()
        assert (integers.tolist(), more.tolist()) == ([0x5A5A5A5A] * 2, [0x5A5A5A5A] * 5)
        assert flags.all()
        assert np.isnan(step(ph.ones(2, device=device)).numpy()).all()
    finally:
        ph.debug(False)


def test_uninitialized_results_of_a_captured_step_do_not_share_memory(device: ph.Device) -> None:
    step = ph.jit(lambda: (ph.empty(2, device=device), ph.empty(2, device=device)))
    for _ in range(3):
        a, b = step()
        a.fill_(1)
        b.fill_(2)
        assert a.tolist() == [1, 1]
