"""Optimizers over several steps against PyTorch's, and their state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn, optim
from polyhal.hal.core import dispatch
from polyhal.hal.errors import OutOfMemoryError
from polyhal.optim import rule_optimizer, sgd

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.5}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "maximize": True}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("AdamW", {"lr": 0.01, "amsgrad": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.9, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True}),
    ("Adamax", {"weight_decay": 0.1}),
    ("NAdam", {}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.1}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.9, 0.6), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Rprop", {}),
    ("ASGD", {"lambd": 0.01, "t0": 2, "weight_decay": 0.1}),
]
SHAPES = [(3, 4), (5,), (), (2, 1, 3)] * 7  # more than one launch takes


def pair(device: ph.Device) -> tuple[list[nn.Parameter], list[torch.nn.Parameter]]:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    return [nn.Parameter(ph.tensor(v, device=device)) for v in values], [
        torch.nn.Parameter(torch.tensor(v)) for v in values
    ]


def give_gradients(ours: list[nn.Parameter], theirs: list[torch.nn.Parameter], step: int) -> None:
    """Number 1 has no gradient in the first two steps, so that step counts differ."""
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        g = np.asarray(np.random.default_rng(100 * step + i).normal(size=p.shape), np.float32)
        missing = i == 1 and step < 2
        p.grad, q.grad = (None, None) if missing else (ph.tensor(g, device=p.device), torch.tensor(g))


def check(ours: list[nn.Parameter], theirs: list[torch.nn.Parameter]) -> None:
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
def test_steps(device: ph.Device, name: str, settings: dict[str, Any]) -> None:
    ours, theirs = pair(device)
    a, b = getattr(optim, name)(ours, **settings), getattr(torch.optim, name)(theirs, **settings)
    for step in range(6):
        give_gradients(ours, theirs, step)
        a.step()
        b.step()
        check(ours, theirs)


@pytest.mark.parametrize("name", sorted({name for name, _ in SETTINGS}))
def test_a_captured_function_may_contain_the_first_step(numpy_device: ph.Device, name: str) -> None:
    p = nn.Parameter(ph.tensor([0.5, -1.0], device=numpy_device))
    q = torch.nn.Parameter(torch.tensor([0.5, -1.0]))
    a, b = getattr(optim, name)([p], lr=0.01), getattr(torch.optim, name)([q], lr=0.01)

    @ph.jit
    def call(x: ph.Tensor) -> None:
        a.step()  # the parameter has no gradient in the first call
        (p * x).sum().backward()

    for value in (1.0, 2.0, 3.0, 4.0):
        call(ph.tensor([value, -value], device=numpy_device))
        b.step()
        (q * torch.tensor([value, -value])).sum().backward()
        check([p], [q])


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
def test_state_goes_both_ways(device: ph.Device, name: str, settings: dict[str, Any]) -> None:
    """PyTorch's state dict loads here, and a state dict from here continues exactly."""
    ours, theirs = pair(device)
    a, b = getattr(optim, name)(ours, **settings), getattr(torch.optim, name)(theirs, **settings)
    for step in range(3):
        give_gradients(ours, theirs, step)
        b.step()
    for p, q in zip(ours, theirs, strict=True):
        p.detach().copy_(q.detach().numpy())
    a.load_state_dict(b.state_dict())
    again, _ = pair(device)
    c = getattr(optim, name)(again, lr=77.0)
    for step in range(3, 5):
        give_gradients(ours, theirs, step)
        a.step()
        b.step()
        check(ours, theirs)
    c.load_state_dict(a.state_dict())
    for p, q in zip(again, ours, strict=True):
        p.detach().copy_(q.detach())
    give_gradients(ours, theirs, 9)
    give_gradients(again, theirs, 9)
    a.step()
    c.step()
    for p, q in zip(again, ours, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("SGD", {"momentum": 0.9}),
        ("Adam", {}),
        ("AdamW", {"weight_decay": 0.0}),
        ("Adam", {"amsgrad": True}),
        ("Adagrad", {}),
        ("Adadelta", {}),
        ("RMSprop", {"momentum": 0.5}),
        ("Adamax", {}),
        ("NAdam", {}),
        ("RAdam", {}),
        ("Rprop", {}),
        ("ASGD", {"lr": 0.1, "t0": 1}),
    ],
    ids=str,
)
def test_infinite_parameters_stay_infinite_without_weight_decay(
    device: ph.Device, name: str, settings: dict[str, Any], captured: bool
) -> None:
    values = np.array([np.inf, -np.inf, 0.5, -2.0], np.float32)
    gradient = np.array([0.25, -0.5, 1.0, 0.0], np.float32)
    many = [values] * 3
    ours = [nn.Parameter(ph.tensor(v, device=device)) for v in many]
    theirs = [torch.nn.Parameter(torch.tensor(v)) for v in many]
    a, b = getattr(optim, name)(ours, **settings), getattr(torch.optim, name)(theirs, **settings)
    scale = ph.tensor(gradient, device=device)

    def step() -> None:
        for p in ours:
            p.grad = scale * 1.0
        a.step()

    run = ph.jit(step) if captured else step
    for _ in range(4):
        run()
        for q in theirs:
            q.grad = torch.tensor(gradient)
        b.step()
    check(ours, theirs)
    if name == "ASGD":
        for p, q in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.state[p]["ax"].numpy(), b.state[q]["ax"].numpy(), rtol=1e-5)


def test_groups(device: ph.Device) -> None:
    ours, theirs = pair(device)
    mine = [{"params": ours[:3], "weight_decay": 0.5}, {"params": ours[3:], "lr": 0.2}]
    other = [{"params": theirs[:3], "weight_decay": 0.5}, {"params": theirs[3:], "lr": 0.2}]
    a, b = optim.SGD(mine, lr=0.1, momentum=0.5), torch.optim.SGD(other, lr=0.1, momentum=0.5)
    for step in range(3):
        give_gradients(ours, theirs, step)
        a.step()
        b.step()
    check(ours, theirs)
    assert [g["params"] for g in a.state_dict()["param_groups"]] == [[0, 1, 2], list(range(3, len(ours)))]
    assert "group 1: 25 parameters, lr=0.2" in repr(a)
    with pytest.raises(nn.StateDictError, match=r"\[28\] parameters, these have \[3, 25\]"):
        a.load_state_dict(optim.SGD(pair(device)[0]).state_dict())


def test_half_precision_parameters_have_float32_state(device: ph.Device) -> None:
    p = nn.Parameter(ph.ones((4,), ph.float16, device=device))
    optimizer = optim.AdamW([p], lr=0.1)
    p.grad = ph.ones((4,), ph.float16, device=device)
    optimizer.step()
    assert p.dtype is ph.float16
    assert optimizer.state[p]["exp_avg"].dtype is ph.float32
    assert (p.numpy() < 1).all()


def test_few_launches(device: ph.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pair(device)
    optimizer = optim.AdamW(ours)
    give_gradients(ours, theirs, 3)
    calls = []
    original = dispatch.apply_into
    monkeypatch.setattr(dispatch, "apply_into", lambda op, *rest: (calls.append(op.name), original(op, *rest)))
    optimizer.step()
    assert calls == ["adam_step"] * 2


def test_zero_grad_and_closure(device: ph.Device) -> None:
    p = nn.Parameter(ph.ones((2,), device=device))
    optimizer = optim.SGD([p], lr=0.5)

    def closure() -> ph.Tensor:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with ph.no_grad():
        assert optimizer.step(closure).item() == 2
    assert p.tolist() == [0, 0]
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is not None
    assert p.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert p.grad is None


def test_step_is_noticed_by_the_tape(device: ph.Device) -> None:
    p = nn.Parameter(ph.ones((2,), device=device))
    out = (p * p).sum()
    p.grad = ph.ones((2,), device=device)
    optim.SGD([p], lr=0.5).step()
    with pytest.raises(ph.errors.AutogradError, match="changed in place"):
        out.backward()


def test_refused_arguments(device: ph.Device) -> None:
    p = nn.Parameter(ph.ones((2,), device=device))
    with pytest.raises(ValueError, match="no parameters"):
        optim.SGD([])
    with pytest.raises(ValueError, match="given twice"):
        optim.SGD([p, p])
    with pytest.raises(ValueError, match="result of an op"):
        optim.SGD([p * 2])
    with pytest.raises(TypeError, match="got a int"):
        optim.SGD([3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="lr is -1"):
        optim.Adam([p], lr=-1)
    with pytest.raises(ValueError, match="betas"):
        optim.Adam([p], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="nesterov"):
        optim.SGD([p], nesterov=True)


@pytest.mark.parametrize(
    "settings", [{"dampening": 0.5}, {"nesterov": True}, None], ids=["dampened", "nesterov", "AdamW"]
)
def test_a_step_that_found_no_memory_can_be_repeated(
    device: ph.Device, settings: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes while the inputs of the update are made: negated gradients need memory."""
    gradient = rule_optimizer.gradient

    def no_memory(*arguments: Any, **keywords: Any) -> Any:
        raise OutOfMemoryError("[neg] no memory")

    weights = []
    for fails in (False, True):
        x = ph.tensor(np.arange(3, dtype=np.float32), device=device, requires_grad=True)
        optimizer = optim.AdamW([x]) if settings is None else optim.SGD([x], 0.1, momentum=0.9, **settings)
        x.grad = ph.tensor(np.array([1, -2, 3], np.float32), device=device)
        for _ in range(2):
            for module in (rule_optimizer, sgd) if fails else ():
                monkeypatch.setattr(module, "gradient", no_memory)
            if fails:
                with pytest.raises(OutOfMemoryError):
                    optimizer.step()
            for module in (rule_optimizer, sgd):
                monkeypatch.setattr(module, "gradient", gradient)
            optimizer.step()
        weights.append(x.detach().numpy())
    np.testing.assert_array_equal(*weights)


def test_state_of_a_new_parameter_is_an_empty_dictionary() -> None:
    class Counting(optim.Optimizer):
        """Programs written for PyTorch run unchanged."""

        def step(self, closure: Any = None, *, skip: Any = None) -> Any:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["count"] = state.get("count", 0) + 1
                    p.data.add_(p.grad, alpha=-group["lr"])

    p = nn.Parameter(ph.ones(2, device="numpy"))
    optimizer = Counting([p], {"lr": 0.5})
    for _ in range(2):
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()
    assert p.tolist() == [0, 0]
    assert optimizer.state_dict()["state"] == {0: {"count": 2}}
    adam = optim.Adam([p], lr=0.1)
    assert adam.state[p] == {}
    adam.step()
    adam.subtract_steps(0)
    assert adam.state[p]["step"] == 1
