"""`copy.copy`, `copy.deepcopy` and pickles of tensors, modules, optimizers and generators."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim
from polyhal.hal.dtypes import ALL


def _pickled(value: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(value, protocol))


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_keeps_values_dtype_device_and_requires_grad(device: ph.Device, protocol: int) -> None:
    for dtype in (d for d in ALL if d in device.capabilities.storage):
        x = ph.tensor(np.arange(6).reshape(2, 3), dtype=dtype, device=device)
        for kept in (x, x.T, x[:, ::2], x[0, 1]):
            back = _pickled(kept, protocol)
            assert (back.dtype, back.device, back.shape) == (dtype, device, kept.shape)
            np.testing.assert_array_equal(back.numpy(), kept.numpy())
    z = _pickled(ph.tensor([1 + 2j, -3j], device=device), protocol)
    assert z.tolist() == [1 + 2j, -3j]
    assert z.dtype is ph.complex64
    assert _pickled(ph.ones(2, device=device, requires_grad=True)).requires_grad


def test_results_of_ops_are_unpickled_as_leaves(device: ph.Device) -> None:
    x = ph.ones(2, device=device, requires_grad=True)
    back = _pickled(x * 3)
    assert back.is_leaf
    back.sum().backward()
    assert x.grad is None
    assert back.grad is not None


def test_one_tensor_in_several_places_of_a_pickle_remains_one() -> None:
    x = nn.Parameter(ph.ones(2, device="numpy"))
    first, second = _pickled((x, {"again": x}))
    assert first is second["again"]
    assert type(first) is nn.Parameter


def test_pickles_of_protocol_5_leave_the_elements_out_of_band() -> None:
    buffers: list[pickle.PickleBuffer] = []
    x = ph.ones(1000, device="numpy")
    head = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(head) < 1000
    assert pickle.loads(head, buffers=buffers).tolist() == x.tolist()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_shallow_copy_shares_memory(device: ph.Device, requires_grad: bool) -> None:
    x = nn.Parameter(ph.zeros(3, device=device), requires_grad)
    twin = copy.copy(x)
    assert type(twin) is nn.Parameter
    assert (twin.requires_grad, twin.is_leaf, twin.grad) == (requires_grad, True, None)
    with ph.no_grad():
        x[1] = 5
    assert twin.tolist() == [0, 5, 0]


def test_a_shallow_copy_of_a_result_stays_on_the_tape(device: ph.Device) -> None:
    x = ph.ones(2, device=device, requires_grad=True)
    (copy.copy(x * 3) * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6, 6]


def test_a_deep_copy_has_the_gradient_of_a_tensor_and_not_of_a_parameter(device: ph.Device) -> None:
    x, p = ph.ones(2, device=device, requires_grad=True), nn.Parameter(ph.ones(2, device=device))
    (x * p * 2).sum().backward()
    twin = copy.deepcopy(x)
    assert twin.grad is not None
    twin.grad.zero_()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]
    assert copy.deepcopy(p).grad is None


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, _pickled], ids=["copy", "deepcopy", "pickle"])
def test_kinds_of_tensors_are_kept(copied: Any) -> None:
    class Labelled(ph.Tensor):
        """A tensor subclass with a slot and a `__dict__`."""

    labelled = Labelled([1.0], device="numpy")
    labelled.label = ["a"]  # type: ignore[attr-defined]
    if copied is not _pickled:  # a class within a function cannot be found by name
        assert copied(labelled).label == ["a"]
    assert copied(nn.Buffer([1.0], persistent=False)).persistent is False
    for kind in (nn.Parameter, nn.Buffer):
        assert type(copied(kind(ph.tensor([1j], device="numpy")))).__mro__[2] is type(kind(ph.ones(1)))
    lazy = copied(nn.LazyLinear(3, device="numpy"))
    assert lazy(ph.ones(1, 2, device="numpy")).shape == (1, 3)


def test_captured_steps_take_copies(device: ph.Device) -> None:
    def step(x: ph.Tensor) -> Any:
        return copy.copy(x * 2).sin(), copy.deepcopy(x).exp()

    x = ph.tensor([1.0, 2.0], device=device)
    captured = ph.jit(step)
    for _ in range(3):
        for got, want in zip(captured(x), step(x), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    pickled = ph.jit(lambda x: pickle.dumps(x * 2))
    pickled(x)  # the first call is eager
    with pytest.raises(ph.errors.CaptureError):
        pickled(x)


# --- other machines -------------------------------------------------------------------------------------------------


def test_a_device_that_this_machine_lacks_is_named_and_can_be_replaced() -> None:
    x = ph.ones(2, device="numpy:no_f64")
    data = pickle.dumps({"x": x}, 0).replace(b"numpy:no_f64", b"opencl:remote")
    with pytest.raises(ph.errors.DeviceUnavailableError, match=r"(?s)opencl:remote.*unpickling_on"):
        pickle.loads(data)
    with ph.unpickling_on("numpy"):
        assert pickle.load(io.BytesIO(data))["x"].device is ph.Device("numpy")
        assert _pickled(x).device is ph.Device("numpy")
    assert _pickled(x).device is x.device


# --- modules, optimizers, generators --------------------------------------------------------------------------------


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.LSTM(3, 2)).to("numpy")


def test_a_pickled_module_computes_the_same() -> None:
    model = _model().eval()
    back = _pickled(model)
    x = ph.ones(4, 2, device="numpy")
    np.testing.assert_array_equal(back(x)[0].numpy(), model(x)[0].numpy())
    assert list(back.state_dict()) == list(model.state_dict())
    assert not back.training
    ph.save(_pickled(nn.Linear(2, 2, device="numpy")), buffer := io.BytesIO())
    assert buffer.getvalue()


def test_a_module_with_arguments_that_cannot_be_pickled_is_pickled() -> None:
    class Kept:
        pass

    layer = nn.Linear(2, 2, device="numpy")
    object.__setattr__(layer._construction, "kwargs", {"made_by": lambda: Kept()})
    assert _pickled(layer).weight.shape == (2, 2)


def test_a_shallow_copy_of_a_module_has_registries_of_its_own() -> None:
    model = _model()
    twin = copy.copy(model)
    twin.extra = nn.Linear(2, 2, device="numpy")
    twin.register_forward_hook(lambda *_: None)
    assert twin[0] is model[0]
    assert [name for name, _ in model.named_children()] == ["0", "1", "2", "3"]
    assert not model._hooks


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW, optim.RMSprop, optim.Muon, optim.LBFGS, optim.RAdam])
def test_a_pickled_run_goes_on_bit_for_bit(kind: Any) -> None:
    ph.manual_seed(0)
    model = nn.Linear(3, 2, bias=False, device="numpy")
    settings = {"momentum": 0.9} if kind is optim.SGD else {}
    optimizer = kind(model.parameters(), lr=0.01, **settings)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    x = ph.rand(4, 3, device="numpy")

    def steps(model: Any, optimizer: Any, schedule: Any) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
            schedule.step()
        return model.weight.numpy()

    steps(model, optimizer, schedule)
    other_model, other_optimizer, other_schedule = _pickled((model, optimizer, schedule))
    assert other_optimizer.param_groups[0]["params"][0] is other_model.weight
    assert set(other_optimizer.state) <= {other_model.weight}
    np.testing.assert_array_equal(
        steps(other_model, other_optimizer, other_schedule), steps(model, optimizer, schedule)
    )


def test_unpickled_generators_continue_and_the_default_one_remains_the_default() -> None:
    generator = ph.Generator(7)
    ph.rand(5, generator=generator, device="numpy")
    back = _pickled(generator)
    assert (
        ph.rand(3, generator=back, device="numpy").tolist() == ph.rand(3, generator=generator, device="numpy").tolist()
    )
    assert _pickled(ph.random.default_generator) is ph.random.default_generator
