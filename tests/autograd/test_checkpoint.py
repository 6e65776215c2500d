"""Gradient checkpointing: less memory, and the same gradients to the last bit, eager and captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim

DEVICE = "numpy"


def _model(device: ph.Device) -> nn.Sequential:
    ph.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(32, 128), nn.LayerNorm(128), nn.GELU(), nn.Dropout(0.3), nn.Linear(128, 32))
        for _ in range(4)
    ]
    return nn.Sequential(*blocks).to(device)


def test_keywords_of_pytorch_are_taken_and_not_passed_on() -> None:
    x = ph.tensor([2.0], device=DEVICE, requires_grad=True)
    ph.utils.checkpoint.checkpoint(
        lambda a, times: a * a * times, x, times=3, use_reentrant=False, debug=True
    ).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [12.0]


def _train(checkpointed: bool, *, captured: bool = False, nested: bool = False, half: bool = False) -> list[bytes]:
    device = ph.Device(DEVICE)
    model = _model(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    x = ph.Tensor(np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32), device=device)

    def inner(block: Any, h: ph.Tensor) -> ph.Tensor:
        return ph.checkpoint(block, h) if nested else block(h)

    def step(x: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        with ph.amp.autocast(enabled=half):
            h = x
            for block in model:
                h = h + (ph.checkpoint(inner, block, h) if checkpointed else block(h))
            loss = (h * h).mean()
        loss.backward()
        optimizer.step()
        return loss

    run = ph.jit(step) if captured else step
    ph.manual_seed(5)
    losses = [run(x).numpy().tobytes() for _ in range(4)]
    return [*losses, *(p.numpy().tobytes() for p in model.parameters())]


@pytest.mark.parametrize(
    "how",
    [{}, {"nested": True}, {"captured": True}, {"captured": True, "nested": True}, {"half": True}],
    ids=["eager", "nested", "captured", "captured-nested", "autocast"],
)
def test_training_is_the_same_to_the_last_bit(how: dict[str, bool]) -> None:
    assert _train(True, **how) == _train(False, **how)


def test_less_memory_is_needed_between_the_passes() -> None:
    device = ph.Device(DEVICE)
    model = _model(device)
    x = ph.ones((256, 32), device=device)

    def kept(checkpointed: bool) -> int:
        before = device.memory_stats().used
        h = x
        for block in model:
            h = ph.checkpoint(block, h) if checkpointed else block(h)
        used = device.memory_stats().used - before
        h.sum().backward()
        return used

    assert kept(True) < 0.25 * kept(False)


def test_captured_steps_compute_dropped_values_again() -> None:
    device = ph.Device(DEVICE)
    model = _model(device)

    def arena(checkpointed: bool) -> int:
        def step(x: ph.Tensor) -> None:
            h = x
            for block in model:
                h = ph.checkpoint(block, h) if checkpointed else block(h)
            h.sum().backward()

        return ph.jit(step).memory_report(ph.ones((256, 32), device=device)).devices[0].arena.nbytes

    assert arena(True) < 0.6 * arena(False)


def test_gradients_of_gradients() -> None:
    device = ph.Device(DEVICE)
    rng = np.random.default_rng(0)
    x, w = (ph.Tensor(rng.standard_normal((2, 3)), device=device).requires_grad_() for _ in range(2))

    def function(x: ph.Tensor) -> ph.Tensor:
        return ph.exp(x * w) * ph.sin(x)

    def second(checkpointed: bool) -> list[np.ndarray]:
        y = ph.checkpoint(function, x) if checkpointed else function(x)
        (g,) = ph.grad(y.sum(), [x], create_graph=True)
        return [v.numpy() for v in ph.grad((g * g).sum(), [x, w]) if v is not None]

    for found, expected in zip(second(True), second(False), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_a_second_backward_pass_with_retained_graph() -> None:
    device = ph.Device(DEVICE)
    x = ph.ones((4,), device=device).requires_grad_()
    y = ph.checkpoint(lambda v: ph.exp(ph.sin(v)), x).sum()
    y.backward(retain_graph=True)
    once = x.grad.numpy().copy()
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * once)
    with pytest.raises(ph.errors.AutogradError, match="freed"):
        y.backward()


def test_each_pass_over_a_retained_graph_recomputes_and_keeps_nothing() -> None:
    device = ph.Device(DEVICE)
    x = ph.ones((4,), device=device).requires_grad_()
    runs: list[int] = []

    def function(v: ph.Tensor) -> ph.Tensor:
        runs.append(1)
        return ph.exp(ph.sin(v))

    y = ph.checkpoint(function, x).sum()
    before = device.memory_stats().used
    for passes in (1, 2):
        y.backward(retain_graph=True)
        x.grad = None
        assert len(runs) == 1 + passes
        assert device.memory_stats().used == before


def test_a_function_that_does_something_else_is_noticed() -> None:
    device = ph.Device(DEVICE)
    x = ph.ones((4,), device=device).requires_grad_()
    calls: list[int] = []

    def changing(v: ph.Tensor) -> ph.Tensor:
        calls.append(1)
        return ph.exp(v) if len(calls) == 1 else ph.sin(v)

    y = ph.checkpoint(changing, x).sum()
    with pytest.raises(ph.errors.AutogradError, match="op 0 was exp"):
        y.backward()


def test_a_change_in_place_in_between_is_noticed() -> None:
    device = ph.Device(DEVICE)
    x, w = (ph.ones((4,), device=device).requires_grad_() for _ in range(2))
    y = ph.checkpoint(lambda v: ph.exp(v * w), x).sum()
    with ph.no_grad():
        w.add_(1.0)
    with pytest.raises(ph.errors.AutogradError, match="changed in place"):
        y.backward()


@pytest.mark.parametrize("function", [ph.exp2, lambda v: v * v, lambda v: ph.sin(v + 1)])
def test_a_change_of_an_argument_that_an_op_computed_is_noticed(function: Callable[[ph.Tensor], ph.Tensor]) -> None:
    x = ph.ones((4,), device=ph.Device(DEVICE)).requires_grad_()
    argument = x + 1
    y = ph.checkpoint(function, argument).sum()
    argument.fill_(0.25)
    with pytest.raises(ph.errors.AutogradError, match="changed in place"):
        y.backward()


def test_without_a_tape_the_function_is_just_called() -> None:
    device = ph.Device(DEVICE)
    x = ph.ones((4,), device=device).requires_grad_()
    with ph.no_grad():
        assert not ph.checkpoint(ph.exp, x).requires_grad


def test_a_function_whose_gradient_reads_no_tensor_runs_once(device: ph.Device) -> None:
    runs = []

    def scaled(x: ph.Tensor) -> ph.Tensor:
        runs.append(x)
        return (x * 0.5).sum() + x

    x, y = ph.ones((3,), device=device, requires_grad=True), ph.ones((3,), device=device)
    out = ph.checkpoint(lambda a, b: scaled(a) + b, x, y)
    y.add_(1.0)
    out.sum().backward()
    assert len(runs) == 1
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [2.5, 2.5, 2.5])
