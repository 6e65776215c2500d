"""Memory reports agree with measurements of the pool."""

from __future__ import annotations

import numpy as np
import pytest
from devices import PARITY_DEVICES

import polyhal as ph

from .models import training


@pytest.mark.parametrize("kind", ["mlp", "cnn", "gpt"])
@pytest.mark.parametrize("name", ["numpy", *[n for n in PARITY_DEVICES if not n.startswith("numpy")]])
def test_the_predicted_peak_is_measured(name: str, kind: str) -> None:
    if name == "wgpu" and kind != "mlp":
        pytest.skip("one model shows that blocks without sharing are counted, and this device compiles slowly")
    device = ph.Device(name)
    model, step, arguments = training(kind, device)
    jitted = ph.jit(step)
    before = [p.numpy().tobytes() for p in model.parameters()]
    first = jitted.memory_report(*arguments)
    assert before == [p.numpy().tobytes() for p in model.parameters()]
    assert all(p.grad is None for p in model.parameters())
    jitted(*arguments)
    # Recorded and run, recorded again and compared, replayed.
    for _ in range(3):
        device.pool.reset_peak()
        jitted(*arguments)
        measured = device.memory_stats().peak
        assert abs(jitted.memory_report(*arguments).peak - measured) <= 0.03 * measured
        assert abs(first.peak - measured) <= 0.03 * measured


def test_the_report_names_its_tensors() -> None:
    device = ph.Device("numpy")
    model, step, arguments = training("gpt", device)
    report = ph.jit(step).memory_report(*arguments)
    (memory,) = report.devices
    assert memory.parameters.nbytes >= sum(p.size * 4 for p in model.parameters())
    assert len(memory.parameters.entries) == len(list(model.parameters()))
    assert len(memory.state.entries) == 2 * len(memory.parameters.entries)
    assert len(memory.gradients.entries) == len(memory.parameters.entries)
    assert {e.name for e in memory.parameters.entries} <= {n for n, _ in model.named_parameters()}
    text = str(report)
    assert "transformer.h.0.mlp" in text
    assert "float32[8, 32, 128]" in text
    assert "fullest at step" in text
    assert memory.shared == memory.gradients.nbytes
    assert memory.own == memory.arena.nbytes + memory.results.nbytes


def test_a_captured_block_reports_its_memory() -> None:
    device = ph.Device("numpy")
    x = ph.ones((100,), device=device)
    with ph.capture() as step:
        y = ph.exp(x) + 1.0
    report = step.memory_report()
    assert report.devices[0].gradients.nbytes >= 400
    assert y.numpy()[0] == pytest.approx(3.71828, rel=1e-5)


def test_gradients_share_memory_with_earlier_values() -> None:
    device = ph.Device("numpy")
    weights = [ph.ones((64, 64), device=device).requires_grad_() for _ in range(4)]

    def step(x: ph.Tensor) -> ph.Tensor:
        for w in weights:
            w.grad = None
        h = x
        for w in weights:
            h = ph.sin(h @ w)
        loss = h.sum()
        loss.backward()
        return loss

    x = ph.ones((64, 64), device=device)
    (memory,) = ph.jit(step).memory_report(x).devices
    assert memory.shared == memory.gradients.nbytes == 4 * 64 * 64 * 4
    # Eight values are saved for the backward pass, and are dead when the last gradient is computed.
    assert memory.arena.nbytes < 8 * 64 * 64 * 4 + memory.shared // 2


def test_old_gradients_keep_their_values_while_the_program_holds_them() -> None:
    device = ph.Device("numpy")
    w = ph.Tensor(np.arange(12.0).reshape(3, 4), device=device).requires_grad_()

    def step(x: ph.Tensor) -> None:
        w.grad = None
        ((x @ w) * (x @ w)).sum().backward()

    def expected(x: ph.Tensor) -> np.ndarray:
        a = x.numpy()
        return 2 * a.T @ (a @ np.arange(12.0).reshape(3, 4))

    jitted = ph.jit(step)
    batches = [ph.Tensor(np.random.default_rng(k).standard_normal((5, 3)), device=device) for k in range(5)]
    for x in batches[:3]:
        jitted(x)
    own = w.grad
    assert own is not None
    held = own.detach()
    jitted(batches[3])
    np.testing.assert_allclose(held.numpy(), expected(batches[2]))
    np.testing.assert_allclose(own.numpy(), expected(batches[3]))
    del held
    jitted(batches[4])
    assert w.grad is own
    np.testing.assert_allclose(own.numpy(), expected(batches[4]))


def test_an_old_gradient_may_be_an_argument() -> None:
    device = ph.Device("numpy")
    w = ph.Tensor(np.ones((3, 3)), device=device).requires_grad_()

    def step(x: ph.Tensor) -> ph.Tensor:
        w.grad = None
        y = ph.exp(x @ w) @ w
        y.sum().backward()
        return y + x

    jitted = ph.jit(step)
    x = ph.Tensor(np.eye(3), device=device)
    for _ in range(3):
        jitted(x)
    assert w.grad is not None
    before = w.grad.numpy()
    found = jitted(w.grad)
    np.testing.assert_allclose(found.numpy(), np.exp(before @ np.ones((3, 3))) @ np.ones((3, 3)) + before)
