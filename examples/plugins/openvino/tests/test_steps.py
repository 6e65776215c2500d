"""Captured forward passes on OpenVINO: one program each, with the results of NumPy's device and of the weights in force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import nn
from polyhal.models import CNN, GPT, MLP, GPTConfig

_TOLERANCE = 1e-5
"""Sums of at most 100 products of order 1, in float32 and in another order."""


def _mlp() -> tuple[nn.Module, np.ndarray]:
    return MLP((6, 16, 3)), np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)


def _cnn() -> tuple[nn.Module, np.ndarray]:
    return CNN(size=4, channels=4), np.random.default_rng(0).standard_normal((4, 1, 4, 4)).astype(np.float32)


def _gpt() -> tuple[nn.Module, np.ndarray]:
    model = GPT(GPTConfig(vocab_size=13, block_size=8, n_layer=1, n_head=2, n_embd=16))
    return model, np.random.default_rng(0).integers(0, 13, (2, 8))


MODELS: dict[str, Callable[[], tuple[nn.Module, np.ndarray]]] = {"mlp": _mlp, "cnn": _cnn, "gpt": _gpt}


def _forward(model: nn.Module, device: str) -> Any:
    model.eval().to(device)

    @polyhal.jit
    def forward(x: Any) -> Any:
        with polyhal.no_grad():
            return model(x)

    return forward


@pytest.mark.parametrize("name", MODELS)
def test_a_forward_pass_is_one_program(name: str) -> None:
    found = []
    for device in ("openvino", "numpy"):
        polyhal.manual_seed(1)
        model, x = MODELS[name]()
        forward = _forward(model, device)
        runs = [forward(polyhal.tensor(x, device=device)).numpy() for _ in range(3)]
        np.testing.assert_array_equal(runs[1], runs[2])
        found.append(runs[2])
        if device == "openvino":
            assert "; 1 run on openvino" in forward.explain(), forward.explain()
    np.testing.assert_allclose(*found, rtol=_TOLERANCE, atol=_TOLERANCE)


def test_weights_may_change_between_runs() -> None:
    model, x = _mlp()
    forward, inputs = _forward(model, "openvino"), polyhal.tensor(x, device="openvino")
    first = [forward(inputs).numpy() for _ in range(3)][-1]
    with polyhal.no_grad():
        list(model.parameters())[-1].add_(2.0)  # the last bias
    np.testing.assert_allclose(forward(inputs).numpy(), first + 2, rtol=_TOLERANCE)


def test_weights_that_served_long_are_replaced_by_new_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = polyhal.tensor(_mlp()[1], device="openvino")
    from polyhal_openvino import programs  # imports OpenVINO, which must follow OpenCL's runtimes

    constants: list[int] = []
    compile_program = programs.Program._compile

    def note(self: Any, inputs: Any) -> None:
        compile_program(self, inputs)
        constants.append(len(self._constant))

    monkeypatch.setattr(programs, "_WORTHWHILE", 3)
    monkeypatch.setattr(programs.Program, "_compile", note)
    model, _ = _mlp()
    forward = _forward(model, "openvino")
    weight = next(model.parameters())
    for runs in (5, 5, 1, 1):
        for _ in range(runs):
            found = forward(inputs).numpy()
        with polyhal.no_grad():
            expected = model(inputs).numpy()
            weight.mul_(0.5)
        np.testing.assert_allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE)
    assert constants == [4, 4, 4, 3], "the last change came after one run"


def test_explain_shows_why_an_op_is_outside_of_programs() -> None:
    x = polyhal.tensor(np.arange(4), device="openvino")
    step = polyhal.jit(lambda x: polyhal.relu(x.astype(polyhal.float32) * 2) + (x * x).sum(), warm_up=False)
    assert step(x).tolist() == [14.0, 16.0, 18.0, 20.0]
    assert "OpenVINO computes in float32, int32 and bool, not in int64" in step.explain()


def test_a_program_that_does_not_fit_is_refused_before_it_runs() -> None:
    """The weight takes 36 of 64 MiB: there is no room for the copy that OpenVINO packs."""
    w = polyhal.ones((3 << 10, 3 << 10), device="openvino:small")
    step = polyhal.jit(lambda x: polyhal.relu(x @ w), warm_up=False)
    assert step(polyhal.ones((1, 3 << 10), device="openvino:small")).tolist() == [[3072.0] * 3072]
    assert "a program needs 37748736 bytes for a copy of its weights" in step.explain(), step.explain()
