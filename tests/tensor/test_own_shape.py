"""Tensors that change their own shape or history in place, gradient hooks, and memory shared with other libraries."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.hal.errors import AutogradError, CaptureError, ShapeError
from polyhal.hal.system.discovery.registry import registry

VALUES = np.arange(1, 7, dtype=np.float32).reshape(1, 2, 3)
CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("squeeze_", ()),
    ("squeeze_", (0,)),
    ("unsqueeze_", (1,)),
    ("unsqueeze_", (-1,)),
    ("transpose_", (0, 2)),
    ("swapaxes_", (1, 2)),
    ("swapdims_", (0, -1)),
]


def both(values: Any = VALUES) -> tuple[ph.Tensor, torch.Tensor]:
    return ph.tensor(values, device="numpy"), torch.tensor(values)


@pytest.mark.parametrize(("name", "args"), CALLS)
def test_a_tensor_becomes_a_view_of_itself(name: str, args: tuple[Any, ...]) -> None:
    for x in both():
        view = x[:, 0]
        assert getattr(x, name)(*args) is x
        x += 1
        assert view.tolist() == [[2, 3, 4]], "both see one memory"
    a, b = both()
    assert getattr(a, name)(*args).shape == tuple(getattr(b, name)(*args).shape)
    assert a.tolist() == b.tolist()
    assert a.strides == b.stride() or 1 in a.shape


def test_a_matrix_is_transposed_in_place() -> None:
    for x in both(VALUES[0]):
        assert x.t_() is x
        x[0, 1] = 9
        assert x.tolist() == [[1, 9], [2, 5], [3, 6]]


@pytest.mark.parametrize(("name", "args"), CALLS)
def test_gradients_flow_through_a_change_of_shape(name: str, args: tuple[Any, ...]) -> None:
    grads = []
    for x in both():
        x.requires_grad_()
        y = x * 2
        getattr(y, name)(*args)
        weights = np.arange(6, dtype=np.float32).reshape(tuple(y.shape))
        (
            y * (ph.tensor(weights, device="numpy") if isinstance(y, ph.Tensor) else torch.tensor(weights))
        ).sum().backward()
        assert x.grad is not None
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


def test_writes_after_a_change_of_shape_are_on_the_tape() -> None:
    grads = []
    for x in both(VALUES[0]):
        x.requires_grad_()
        y = x * 2
        row = y[0]
        y.t_()
        y[0] *= 10
        (y.sum() + row.sum()).backward()
        assert x.grad is not None
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


def test_a_result_that_its_op_saved_may_change_its_shape() -> None:
    x = ph.tensor(VALUES, device="numpy", requires_grad=True)
    y = x.tanh()
    y.squeeze_(0).t_()
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh(VALUES) ** 2, rtol=1e-5, atol=1e-6)


def test_an_input_that_an_op_saved_may_not() -> None:
    x = ph.tensor(VALUES[0, :, :2], device="numpy", requires_grad=True)
    w = ph.tensor([[1.0, 2.0], [3.0, 4.0]], device="numpy")
    y = x * w
    w.t_()
    with pytest.raises(AutogradError, match="an input changed its shape in place after it was saved for the gradient"):
        y.sum().backward()
    z = x * w
    w.t_().t_()
    z.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize("use", [lambda x: x.t_(), lambda x: x.squeeze_(), lambda x: x.unsqueeze_(0)])
def test_a_leaf_that_requires_gradients_keeps_its_shape(use: Callable[[Any], Any]) -> None:
    for x in both(VALUES[0]):
        x.requires_grad_()
        with pytest.raises(RuntimeError, match="leaf"):
            use(x)


def test_shapes_stay_in_captured_steps_and_batches() -> None:
    x = ph.tensor(VALUES[0], device="numpy")
    with pytest.raises(CaptureError, match=r"t_.* tensors keep their shape in a captured step"):
        ph.jit(lambda x: (x + 1).t_(), warm_up=False)(x)
    with pytest.raises(AutogradError, match="inside vmap"):
        ph.vmap(lambda x: x.unsqueeze_(0))(x)


def test_detach_takes_the_tensor_itself_off_the_tape() -> None:
    for x in both():
        x.requires_grad_()
        y = x * 2
        z = y * 3
        assert y.detach_() is y
        assert y.is_leaf
        assert not y.requires_grad
        z.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [[[6, 6, 6], [6, 6, 6]]]
        with pytest.raises(RuntimeError, match="view"):
            (x * 2)[0].detach_()
        assert not x.detach_().requires_grad


IN_PLACE: list[tuple[str, tuple[Any, ...]]] = [
    ("clamp_max_", (0.4,)),
    ("clamp_min_", (0.4,)),
    ("deg2rad_", ()),
    ("rad2deg_", ()),
    ("logit_", (1e-6,)),
    ("round_", ()),
    ("mvlgamma_", (2,)),
    ("polygamma_", (1,)),
]


@pytest.mark.parametrize(("name", "args"), IN_PLACE)
def test_elements_are_replaced(name: str, args: tuple[Any, ...]) -> None:
    values = np.array([0.1, 0.45, 0.7, 0.95], np.float32) + (1 if name.startswith("mvl") else 0)
    a, b = both(values)
    assert getattr(a, name)(*args) is a
    np.testing.assert_allclose(a.numpy(), getattr(b, name)(*args).numpy(), rtol=2e-5, atol=1e-6)


def test_operands_of_replaced_elements() -> None:
    a, b = ph.tensor([1.5, 2.0], device="numpy"), torch.tensor([1.5, 2.0])
    assert a.ldexp_(ph.tensor([1, 3], device="numpy")).tolist() == b.ldexp_(torch.tensor([1, 3])).tolist() == [3, 16]
    wide, theirs = ph.tensor([2.0], dtype=ph.float64, device="numpy"), torch.tensor([2.0], dtype=torch.float64)
    np.testing.assert_allclose(wide.float_power_(0.5).numpy(), theirs.float_power_(0.5).numpy(), rtol=1e-15)


@pytest.mark.parametrize(("shape", "wrap"), [((3, 4), False), ((7, 3), False), ((7, 3), True), ((3, 3, 3), False)])
def test_fill_diagonal(shape: tuple[int, ...], wrap: bool) -> None:
    a, b = both(np.zeros(shape, np.float32))
    assert a.fill_diagonal_(5, wrap).tolist() == b.fill_diagonal_(5, wrap).tolist()
    with pytest.raises(ShapeError, match="fill_diagonal_"):
        ph.zeros((3,), device="numpy").fill_diagonal_(1)


# --- hooks ----------------------------------------------------------------------------------------------------------


def test_a_hook_after_accumulation_sees_the_complete_gradient() -> None:
    logs: list[list[Any]] = [[], []]
    for x, log in zip(both(), logs, strict=True):
        x.requires_grad_()
        handle = x.register_post_accumulate_grad_hook(lambda p, log=log: log.append(p.grad.tolist()))  # type: ignore[misc]
        for _ in range(2):
            (x * 2 + x * 3).sum().backward()
        handle() if callable(handle) else handle.remove()
        x.sum().backward()
        with pytest.raises(RuntimeError):
            (x * 2).register_post_accumulate_grad_hook(print)
    assert logs[0] == logs[1] == [[[[5.0] * 3] * 2], [[[10.0] * 3] * 2]]


def test_an_optimizer_may_step_in_the_hook() -> None:
    model = ph.nn.Linear(2, 1, device="numpy")
    before = model.weight.tolist()
    optimizers = {p: ph.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(p: ph.Tensor) -> None:
        optimizers[p].step()
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    model(ph.ones((1, 2), device="numpy")).sum().backward()
    assert model.weight.grad is None
    np.testing.assert_allclose(model.weight.numpy(), np.array(before) - 0.1, rtol=1e-6)


def test_results_retain_their_gradients() -> None:
    for x in both():
        x.requires_grad_()
        y = x * 2
        assert not y.retains_grad
        for _ in range(2):
            y.retain_grad()
        x.retain_grad()
        assert y.retains_grad
        assert not x.retains_grad
        z = (y * 3).sum()
        z.backward(retain_graph=True)
        z.backward()
        assert y.grad is not None
        assert x.grad is not None
        assert y.grad.tolist() == [[[6.0] * 3] * 2]
        assert x.grad.tolist() == [[[12.0] * 3] * 2]
        with pytest.raises(RuntimeError):
            y.detach().retain_grad()


# --- memory of others -----------------------------------------------------------------------------------------------


def test_memory_of_the_program_is_copied() -> None:
    data = array.array("i", [1, 2, 3, 4])
    assert ph.frombuffer(data, dtype=ph.int32, device="numpy").tolist() == [1, 2, 3, 4]
    x = ph.frombuffer(data, dtype="int32", count=2, offset=4, device="numpy")
    data[1] = 9
    assert (x.tolist(), x.dtype) == ([2, 3], ph.int32)
    assert ph.frombuffer(np.ones(2, np.float32), dtype=ph.float32, requires_grad=True, device="numpy").requires_grad
    with pytest.raises(ValueError, match="buffer size"):
        ph.frombuffer(b"123", dtype=ph.int32, device="numpy")


def test_other_libraries_take_tensors() -> None:
    x = ph.tensor(VALUES, device="numpy").transpose(1, 2)
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert torch.from_dlpack(x).tolist() == x.tolist()
    assert torch.utils.dlpack.from_dlpack(ph.to_dlpack(x)).tolist() == x.tolist()
    assert ph.from_dlpack(torch.tensor(VALUES), device="numpy").tolist() == VALUES.tolist()


def test_clones_and_sizes() -> None:
    x = ph.tensor(VALUES, device="numpy", requires_grad=True)
    ph.clone(x).sum().backward()
    assert x.grad is not None
    assert ph.is_same_size(x, x.grad)
    assert not x.is_same_size(x[0])


def test_the_default_device_is_set_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_default", "_chosen"):
        monkeypatch.setattr(registry(), name, getattr(registry(), name))
    ph.set_default_device(None)
    first = ph.get_default_device()
    ph.set_default_device("numpy:no_f64")
    assert ph.get_default_device() is ph.Device("numpy:no_f64") is ph.Device.default()
    assert ph.ones((2,)).device.name == ph.nn.Linear(1, 1).weight.device.name == "numpy:no_f64"
    ph.set_default_device(None)
    assert ph.get_default_device() is first
