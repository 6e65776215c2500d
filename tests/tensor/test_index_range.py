"""Indices and labels out of range: an IndexError where they are checked, and never a loss that trains."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import Device, Tensor
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.dispatch import observed
from polyhal.hal.core.dispatch.bounds import check_range
from polyhal.hal.core.dispatch.observed import observed_plan
from polyhal.hal.ops.opdef import OPS
from polyhal.nn import functional


def lookups(device: Device) -> dict[str, Callable[[], Any]]:
    x, wrong = Tensor([[1.0, 2.0, 3.0]], device=device), Tensor([7], device=device)
    return {
        "cross_entropy": lambda: functional.cross_entropy(x, wrong),
        "embedding": lambda: functional.embedding(wrong, polyhal.ones((3, 2), device=device)),
        "take_along_axis": lambda: polyhal.take_along_axis(x, wrong.reshape(1, 1), 1),
    }


@pytest.mark.parametrize("op", ["cross_entropy", "embedding", "take_along_axis"])
def test_processors_refuse_indices_out_of_range(op: str, device: Device) -> None:
    if device.type is not DeviceType.CPU:
        pytest.skip("checked on processors")
    with pytest.raises(IndexError, match=rf"\[{op}\] index 7 .*is out of range; expected -?\d to 2; .*{device}"):
        lookups(device)[op]()


def test_lookups_by_brackets_and_take_are_checked(numpy_device: Device) -> None:
    x, wrong = polyhal.ones((3, 2), device=numpy_device), Tensor([0, 5], device=numpy_device)
    for lookup in (lambda: x[wrong], lambda: polyhal.take(x, wrong), lambda: functional.nll_loss(x[:2], wrong)):
        with pytest.raises(IndexError, match="is out of range"):
            lookup()


def test_functions_are_named_in_errors_about_their_indices(numpy_device: Device) -> None:
    x, index = polyhal.ones((3, 2), device=numpy_device), Tensor([0, 7], device=numpy_device)
    rows, flat = x[:2], Tensor([[0, 7]], device=numpy_device)
    calls: dict[str, Callable[[], object]] = {
        "index_select": lambda: polyhal.index_select(x, 0, index),
        "take": lambda: polyhal.take(x, index),
        "gather": lambda: polyhal.gather(x, 0, flat),
        "take_along_dim": lambda: polyhal.take_along_dim(x, flat, 0),
        "index_add": lambda: polyhal.index_add(x, 0, index, rows),
        "index_add_": lambda: x.index_add_(0, index, rows),
        "index_copy": lambda: polyhal.index_copy(x, 0, index, rows),
        "index_fill": lambda: polyhal.index_fill(x, 0, index, 1.0),
        "index_put": lambda: polyhal.index_put(x, (index,), rows),
        "index_reduce": lambda: polyhal.index_reduce(x, 0, index, rows, "prod"),
        "put_": lambda: x.put_(index, rows[0]),
        "scatter": lambda: polyhal.scatter(x, 0, flat, 1.0),
        "scatter_add": lambda: polyhal.scatter_add(x, 0, flat, rows),
        "scatter_reduce": lambda: polyhal.scatter_reduce(x, 0, flat, rows, "amax"),
        "nll_loss": lambda: functional.nll_loss(rows, index),
        "embedding_bag": lambda: functional.embedding_bag(flat, x),
    }
    for name, call in calls.items():
        with pytest.raises(IndexError, match=rf"^\[{name}\] index 7 .*is out of range; .*test_index_range\.py"):
            call()


def test_each_of_several_indices_is_checked(numpy_device: Device) -> None:
    x = polyhal.ones((3, 2), device=numpy_device)
    with pytest.raises(IndexError, match=r"index 4 at \[1\] is out of range; expected -2 to 1"):
        x[Tensor([0, 0], device=numpy_device), Tensor([1, 4], device=numpy_device)]


def test_an_ignored_label_is_no_error(numpy_device: Device) -> None:
    x = polyhal.zeros((2, 3), device=numpy_device)
    loss = functional.cross_entropy(x, Tensor([-100, 1], device=numpy_device))
    np.testing.assert_allclose(loss.item(), np.log(3), rtol=1e-6)


def test_every_part_of_a_long_index_is_checked(device: Device) -> None:
    """A long index is looked at in parts: the last one is shorter."""
    if device.info.type is not DeviceType.CPU:
        pytest.skip("checked on CPUs")
    x, index = polyhal.ones((3, 2), device=device), np.zeros(300_000, np.int64)
    polyhal.take(x, Tensor(index, device=device))
    index[299_999] = 3
    with pytest.raises(IndexError, match=r"index 3 at \[299999\] is out of range; expected 0 to 2"):
        polyhal.take(x, Tensor(index, device=device))


@pytest.mark.parametrize("enabled", [False, True])
def test_other_devices_are_checked_in_debug_mode(enabled: bool, numpy_device: Device) -> None:
    plan, spec = object(), polyhal.zeros((3, 2), device=numpy_device).spec
    index = polyhal.zeros((1,), dtype="int64", device=numpy_device).spec
    gpu: Any = SimpleNamespace(info=SimpleNamespace(type=DeviceType.GPU))
    plain: Any = SimpleNamespace(outputs=(), run=plan, resolution=None, tuple_result=False, view=None)
    before = polyhal.is_debug()
    polyhal.debug(enabled)
    try:
        assert (observed_plan(gpu, OPS["embedding"], (spec, index), (), plain) is plain) is not enabled
    finally:
        polyhal.debug(before)


def test_a_recorded_step_returns_nan_for_a_label_out_of_range(numpy_device: Device) -> None:
    x = Tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], device=numpy_device)
    step = polyhal.jit(functional.cross_entropy, warm_up=False)
    assert np.isnan(step(x, Tensor([1, 7], device=numpy_device)).item())


def test_gradients_check_only_their_own_indices(numpy_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices of a forward call were checked then; a custom function's backward pass may use others."""
    looked: list[str] = []

    def counted(device: Device, op: str, *rest: Any) -> None:
        looked.append(op)
        check_range(device, op, *rest)

    monkeypatch.setattr(observed, "check_range", counted)
    x = polyhal.ones((3, 2), device=numpy_device, requires_grad=True)
    index = Tensor([[2, -1]], device=numpy_device)

    class Lookup(polyhal.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return polyhal.take_along_axis(g, Tensor([[3, 0]] * 3, device=numpy_device), 1)

    polyhal.sum(polyhal.take_along_axis(x, index, 0)).backward()
    assert looked == ["take_along_axis"]
    np.testing.assert_array_equal(x.grad.numpy(), [[0, 0], [0, 0], [1, 1]])
    with pytest.raises(IndexError, match=r"index 3 .*is out of range"):
        polyhal.sum(Lookup.apply(x)).backward()
    with pytest.raises(IndexError, match=r"index -4 .*is out of range; expected -3 to 2"):
        polyhal.take_along_axis(x, Tensor([[2, -4]], device=numpy_device), 0)
