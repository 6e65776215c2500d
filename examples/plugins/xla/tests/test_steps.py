"""Captured training steps on XLA: one program each, with the results of NumPy's device, in memory that is donated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from polyhal_xla.memory import Memory

import polyhal
from polyhal import nn, optim
from polyhal.models import CNN, GPT, MLP, GPTConfig
from polyhal.nn import functional as F

STEPS = 4


def _mlp() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return MLP((6, 16, 3)), rng.standard_normal((8, 6)).astype(np.float32), np.arange(8) % 3


def _cnn() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return CNN(size=4, channels=4), rng.standard_normal((4, 1, 4, 4)).astype(np.float32), np.arange(4) % 10


def _gpt() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    model = GPT(GPTConfig(vocab_size=13, block_size=8, n_layer=1, n_head=2, n_embd=16))
    x, y = (rng.integers(0, 13, (2, 8)) for _ in range(2))
    return model, x, y


MODELS = {"mlp": _mlp, "cnn": _cnn, "gpt": _gpt}


def _train(name: str, device: str) -> tuple[list[float], nn.Module, Any]:
    polyhal.manual_seed(1)
    model, inputs, targets = MODELS[name]()
    model = model.to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    x, y = polyhal.tensor(inputs, device=device), polyhal.tensor(targets, device=device)

    @polyhal.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits.reshape((-1, logits.shape[-1])), y.reshape((-1,)))
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for k in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.01 / (k + 1)
        losses.append(step(x, y).item())
    return losses, model, step


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_one_program(name: str) -> None:
    """Losses are compared, not parameters: Adam divides gradients near zero by their own size."""
    losses, _, step = _train(name, "xla")
    expected, _, _ = _train(name, "numpy")
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    text = step.explain()
    assert text.count("= program(") == 1, text
    assert "; 1 run on xla" in text, text


def test_results_replace_memory_without_a_copy() -> None:
    _, model, step = _train("mlp", "xla")
    (first, *_) = model.parameters()
    memory = first.buffer.handle
    assert isinstance(memory, Memory)
    old = memory.value
    assert memory.is_stale, "the last step's result is the array of its program"
    x, y = (polyhal.tensor(a, device="xla") for a in MODELS["mlp"]()[1:])
    step(x, y)
    assert old.is_deleted(), "the parameter was donated"
    assert first.buffer.handle is memory


def test_a_copy_outlives_the_donated_original() -> None:
    w = polyhal.ones((3,), device="xla")
    copy = polyhal.jit(lambda w: (polyhal.copy(w), polyhal.copy(w)), warm_up=False)
    copies = [x for _ in range(2) for x in copy(w)]

    @polyhal.jit
    def update() -> None:
        w.sub_(1)

    for _ in range(3):
        update()
    assert w.tolist() == [-2] * 3
    assert [x.tolist() for x in copies] == [[1] * 3] * 4


def test_host_writes_between_programs_are_seen() -> None:
    x = polyhal.ones((3, 4), device="xla")
    step = polyhal.jit(lambda x: polyhal.exp(x) + 1, warm_up=False)
    for number in (0.0, 2.0, -1.0):
        x[1] = number
        expected = np.exp(np.array([[1.0] * 4, [number] * 4, [1.0] * 4], np.float32)) + 1
        np.testing.assert_allclose(step(x).numpy(), expected, rtol=1e-6)


def test_integers_of_64_bits_keep_their_digits() -> None:
    x = polyhal.tensor(np.array([1 << 40, -(1 << 50)]), device="xla")
    step = polyhal.jit(lambda x: x * 3 + 1, warm_up=False)
    assert step(x).tolist() == [(1 << 40) * 3 + 1, -(1 << 50) * 3 + 1]


def test_a_program_that_fails_reports_the_step() -> None:
    """XLA's errors pass through with the step and the device."""
    x = polyhal.ones((3,), device="xla")
    step = polyhal.jit(lambda x: polyhal.exp(x) + 1, warm_up=False)
    step(x)
    x.buffer.handle.array(x.ref).delete()
    with pytest.raises(RuntimeError, match="deleted") as caught:
        step(x)
    assert any("program" in note and "xla" in note for note in caught.value.__notes__)
