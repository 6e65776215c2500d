"""The module tree: registration, state, moving, hooks and printing."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn


class Net(nn.Module):
    scale: ph.Tensor

    def __init__(self, device: ph.Device) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4, device=device)
        self.blocks = nn.ModuleList([nn.Linear(4, 4, device=device), nn.BatchNorm1d(4, device=device)])
        self.register_buffer("scale", ph.ones((2,), device=device), persistent=False)
        self.gain = nn.Parameter(ph.ones((), device=device))
        self.table = nn.ModuleDict({"out": nn.Linear(4, 2, device=device)})

    def forward(self, x: ph.Tensor) -> Any:
        x = self.first(x).relu()
        for block in self.blocks:
            x = block(x)
        return self.table["out"](x) * self.gain


KEYS = [
    "gain",
    "first.weight",
    "first.bias",
    "blocks.0.weight",
    "blocks.0.bias",
    "blocks.1.weight",
    "blocks.1.bias",
    "blocks.1.running_mean",
    "blocks.1.running_var",
    "blocks.1.num_batches_tracked",
    "table.out.weight",
    "table.out.bias",
]


def test_names(device: ph.Device) -> None:
    net = Net(device)
    assert list(net.state_dict()) == KEYS
    parameters = [k for k in KEYS if "running" not in k and "tracked" not in k]
    assert [n for n, _ in net.named_parameters()] == parameters
    assert [n for n, _ in net.named_buffers()] == ["scale", *KEYS[7:10]]
    assert [n for n, _ in net.named_modules()] == ["", "first", "blocks", "blocks.0", "blocks.1", "table", "table.out"]
    assert [n for n, _ in net.named_children()] == ["first", "blocks", "table"]
    assert net.get_submodule("blocks.1") is net.blocks[1]
    with pytest.raises(AttributeError, match="no submodule 'nothing'"):
        net.get_submodule("blocks.nothing")
    assert net.count_parameters() == 1 + 16 + 20 + 8 + 10
    assert list(net.state_dict("model.")) == [f"model.{k}" for k in KEYS]


def test_shared_parameters_count_once(device: ph.Device) -> None:
    net = nn.Module()
    net.a = nn.Linear(3, 3, bias=False, device=device)
    net.b = nn.Linear(3, 3, bias=False, device=device)
    net.b.weight = net.a.weight
    assert [n for n, _ in net.named_parameters()] == ["a.weight"]
    assert [n for n, _ in net.named_parameters(remove_duplicate=False)] == ["a.weight", "b.weight"]
    assert list(net.state_dict()) == ["a.weight", "b.weight"]
    twin = copy.deepcopy(net)
    assert twin.a.weight is twin.b.weight
    assert twin.a.weight is not net.a.weight
    twin.a.weight.detach().zero_()
    assert net.a.weight.numpy().any()


def test_assignment_rules(device: ph.Device) -> None:
    layer = nn.Linear(2, 2, device=device)
    with pytest.raises(TypeError, match="as parameter 'weight'"):
        layer.weight = ph.zeros((2, 2), device=device)  # type: ignore[assignment]
    layer.bias = None
    assert list(layer.state_dict()) == ["weight"]
    del layer.weight
    assert not layer.state_dict()
    norm = nn.BatchNorm1d(2, device=device)
    with pytest.raises(TypeError, match="as buffer"):
        norm.running_mean = 3  # type: ignore[assignment]
    with pytest.raises(KeyError, match="has an attribute 'forward'"):
        nn.Module().register_buffer("forward", None)
    with pytest.raises(ValueError, match="without dots"):
        nn.Module().add_module("a.b", None)

    class Early(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(ph.zeros((1,), device=device))

    with pytest.raises(AttributeError, match="super"):
        Early()


def test_load_state_dict_lists_every_problem(device: ph.Device) -> None:
    net = Net(device)
    state = {k: v.numpy() for k, v in net.state_dict().items()}
    before = net.first.weight.numpy()
    state["first.weight"] = np.zeros((4, 9), np.float32)
    state["gone"] = state.pop("gain")
    with pytest.raises(nn.StateDictError) as caught:
        net.load_state_dict(state)
    for part in ("missing keys: gain", "unexpected keys: gone", "first.weight is (4, 9), here (4, 3)"):
        assert part in str(caught.value)
    np.testing.assert_array_equal(net.first.weight.numpy(), before)
    with pytest.raises(nn.StateDictError, match="shapes differ"):
        net.load_state_dict(state, strict=False)
    state["first.weight"] = np.full((4, 3), 2, np.float64)
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == ["gain"]
    assert result.unexpected_keys == ["gone"]
    assert (net.first.weight.numpy() == 2).all()


def test_train_eval_freeze_apply(device: ph.Device) -> None:
    net = Net(device)
    assert all(m.training for m in net.modules())
    assert not any(m.training for m in net.eval().modules())
    net.requires_grad_(False)
    assert net.count_parameters(trainable_only=True) == 0
    assert net.train().requires_grad_(True)(ph.ones((3, 3), device=device)).requires_grad
    seen: list[str] = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Linear", "BatchNorm1d", "ModuleList", "Linear", "ModuleDict", "Net"]


def test_to_keeps_identity(device: ph.Device) -> None:
    net = Net(device)
    net(ph.ones((3, 3), device=device)).sum().backward()
    weight = net.first.weight
    net.to(ph.float16)
    assert net.first.weight is weight
    assert weight.dtype is ph.float16
    assert weight.grad is not None
    assert weight.grad.dtype is ph.float16
    assert net.blocks[1].num_batches_tracked.dtype.is_integral
    net.to("numpy", "float32")
    assert weight.device is ph.Device("numpy")
    assert weight.dtype is ph.float32
    with pytest.raises(TypeError, match="cannot be cast to int64"):
        net.to(ph.int64)
    net.zero_grad()
    assert weight.grad is None


def test_hooks(device: ph.Device) -> None:
    layer = nn.Identity()
    x = ph.ones((2,), device=device)
    doubled = layer.register_forward_hook(lambda module, args, out: out * 2)
    shifted = layer.register_forward_pre_hook(lambda module, args: args[0] + 1)
    assert layer(x).tolist() == [4, 4]
    shifted.remove()
    assert layer(x).tolist() == [2, 2]
    doubled()
    doubled.remove()
    assert layer(x) is x


def test_containers(device: ph.Device) -> None:
    net = nn.Sequential(nn.Identity(), nn.ReLU(), nn.Tanh())
    assert len(net) == 3
    assert isinstance(net[1], nn.ReLU)
    assert isinstance(net[-1], nn.Tanh)
    assert [type(m) for m in net[1:]] == [nn.ReLU, nn.Tanh]
    assert isinstance(net.append(nn.Flatten())[3], nn.Flatten)
    named = nn.Sequential({"a": nn.Linear(1, 1, device=device), "b": nn.ReLU()})
    assert list(named.state_dict()) == ["a.weight", "a.bias"]
    with pytest.raises(TypeError, match="item 1 is a str"):
        nn.Sequential(nn.ReLU(), "relu")  # type: ignore[arg-type]
    listed = nn.ModuleList([nn.ReLU()])
    listed[0] = nn.Tanh()
    assert isinstance(listed[0], nn.Tanh)
    table = nn.ModuleDict({"a": nn.ReLU()})
    del table["a"]
    assert "a" not in table
    with pytest.raises(KeyError):
        table["a"]


def test_repr(device: ph.Device) -> None:
    net = nn.Sequential(nn.Linear(3, 4, device=device), nn.Sequential(nn.ReLU()))
    assert repr(net) == (
        "Sequential(\n  (0): Linear(in_features=3, out_features=4, bias=True)\n"
        "  (1): Sequential(\n    (0): ReLU()\n  )\n)"
    )
    assert repr(net[0].weight).startswith("Parameter containing:\ntensor(")
    assert "kernel_size=(3, 3), stride=(1, 1), padding=same" in repr(nn.Conv2d(1, 1, 3, padding="same", device=device))


def test_forward_must_be_defined() -> None:
    with pytest.raises(NotImplementedError, match="Module defines no forward"):
        nn.Module()(1)


def test_copies_and_pickles(device: ph.Device) -> None:
    layer = nn.Linear(2, 2, device=device)
    layer.weight.requires_grad_(False)
    layer(ph.ones((1, 2), device=device)).sum().backward()
    twin = copy.deepcopy(layer)
    assert isinstance(twin.weight, nn.Parameter)
    assert not twin.weight.requires_grad
    assert twin.bias is not None
    assert twin.bias.requires_grad
    assert twin.bias.grad is None
    assert twin.weight.buffer.pool is layer.weight.buffer.pool
    twin.weight.zero_()
    assert layer.weight.numpy().any()
    with pytest.raises(ph.errors.AutogradError, match="result of an op"):
        copy.deepcopy(layer(ph.ones((1, 2), device=device)))
    again = pickle.loads(pickle.dumps(layer))
    assert again.weight.tolist() == layer.weight.tolist()
    assert not again.weight.requires_grad


def test_sequential_replaces_a_module_in_place() -> None:
    model = nn.Sequential(nn.Linear(2, 3, device="numpy"), nn.ReLU())
    model[-1] = nn.Tanh()
    assert [type(m).__name__ for m in model] == ["Linear", "Tanh"]
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
